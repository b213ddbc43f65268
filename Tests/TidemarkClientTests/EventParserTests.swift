import Foundation
import Testing

@testable import TidemarkClient

@Suite struct EventParserTests {
  private static let stream =
    ": hello\r\nid: 1\r\n\r\nevent: message.read\ndata: {\"type\":\n"
    + "data:\"message.read\",\"cid\":\"a:ü\"}\nid: 2\n\n:\n\nretry: 5\nno colon\ndata: x: y\n\ndata: unfinished"

  private static let blocks: [EventParser.Block] = [
    .init(id: "1"), .init(id: "2", data: "{\"type\":\n\"message.read\",\"cid\":\"a:ü\"}"), .init(),
    .init(data: "x: y"),
  ]

  @Test func wholeStreamIsSplitIntoBlocks() throws {
    var parser = EventParser()
    #expect(try parser.push(Data(Self.stream.utf8)) == Self.blocks)
  }

  @Test func streamInPiecesGivesSameBlocks() throws {
    let bytes = Data(Self.stream.utf8)
    for size in 1...bytes.count {
      var parser = EventParser()
      var blocks: [EventParser.Block] = []
      for start in stride(from: 0, to: bytes.count, by: size) {
        blocks += try parser.push(bytes[start..<min(start + size, bytes.count)])
      }
      #expect(blocks == Self.blocks, "in pieces of \(size) bytes")
    }
  }

  @Test func unfinishedLineIsBounded() throws {
    var parser = EventParser(bytesMax: 100)
    #expect(try parser.push(Data(repeating: 97, count: 100)) == [])
    #expect(throws: EventParser.BlockTooLong.self) { try parser.push(Data("a".utf8)) }
  }

  @Test func dataOfBlockIsBounded() throws {
    var parser = EventParser(bytesMax: 100)
    let line = Data("data: 0123456789012345678901234567890123456789\n".utf8)
    #expect(try parser.push(line) == [])
    #expect(try parser.push(line) == [])
    #expect(throws: EventParser.BlockTooLong.self) { try parser.push(line) }
  }
}
