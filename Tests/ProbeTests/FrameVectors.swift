import Foundation
import TestSupport

/// The part of Proto/vectors/frames.json that ProbeTests use.
struct FrameVectors: Decodable {
  struct Frame: Decodable {
    var name: String
    var kind: String
    var hex: String
    var fieldNames: [String]

    private enum CodingKeys: String, CodingKey { case name, kind, hex, fields }

    init(from decoder: any Decoder) throws {
      let values = try decoder.container(keyedBy: CodingKeys.self)
      name = try values.decode(String.self, forKey: .name)
      kind = try values.decode(String.self, forKey: .kind)
      hex = try values.decode(String.self, forKey: .hex)
      var fields = try values.nestedUnkeyedContainer(forKey: .fields)
      fieldNames = []
      while !fields.isAtEnd {
        var field = try fields.nestedUnkeyedContainer()
        fieldNames.append(try field.decode(String.self))
      }
    }
  }

  var frames: [Frame]

  static let proto = packageRoot.appending(path: "Proto")

  static let all: [Frame] = {
    do {
      let data = try Data(contentsOf: proto.appending(path: "vectors/frames.json"))
      return try JSONDecoder().decode(FrameVectors.self, from: data).frames
    } catch {
      fatalError("Proto/vectors/frames.json: \(error)")
    }
  }()
}
