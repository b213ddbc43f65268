import Foundation
import HTTP2Session
import NIOCore
import NIOPosix
import Operations

/// An in-process gateway with the routes that the bench uses. It counts marks that moved no watermark.
final class FakeGateway: HTTP2ServerDelegate {
  /// A deliberate fault.
  enum Fault: Equatable {
    case none
    /// The n-th mark is answered 200 and not applied.
    case forgetsMark(Int)
    /// The n-th mark is answered 503.
    case refusesMark(Int)
    /// The n-th message that is registered individually is answered 201 and not registered.
    case forgetsMessage(Int)
    /// Every registration is answered 200, as if the message had existed.
    case knowsEveryMessage
    /// A channel's read state lacks its last member.
    case losesMember
    /// A status counts one reader too many.
    case miscounts
    /// The connection of the n-th mark is closed instead of answering.
    case dropsConnection(Int)
  }

  private let fault: Fault
  private(set) var markCount = 0
  /// Marks that moved no watermark.
  private(set) var repeatCount = 0
  private(set) var registrationCount = 0
  private var members: [String: [String]] = [:]
  private var messages: [String: [String]] = [:]
  /// Watermarks by "user channel".
  private var watermarks: [String: Int] = [:]

  init(fault: Fault = .none) { self.fault = fault }

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<FakeGateway>) {
    let parts = connection.withRequest(stream) { request in
      (
        request.method, request.path.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
        request.body.withUnsafeBytes { Data($0) },
        request.authorization.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      )
    }
    guard let (method, path, body, authorization) = parts else { return }
    let pieces = path.split(separator: "?")
    let segments = pieces[0].split(separator: "/").map(String.init)
    let channel = segments.count > 2 ? segments[2] : ""
    var status = 200
    var json = "{}"
    switch (method, segments.count, segments.last) {
    case (.put, 3, _):
      members[channel] = (object(body)["members"] as? [String]) ?? []
      status = 201
    case (.post, 2, "messages"):
      for entry in (object(body)["messages"] as? [[String: Any]]) ?? [] {
        if let cid = entry["cid"] as? String, let id = entry["id"] as? String {
          messages[cid, default: []].append(id)
        }
      }
    case (.get, 3, _):
      let all = messages[channel] ?? []
      json = #"{"channel":{"newest_message":{"id":"\#(all.last ?? "")","seq":\#(all.count)}}}"#
    case (.get, 4, "read-state"):
      let shown = (members[channel] ?? []).dropLast(fault == .losesMember ? 1 : 0)
      let rows = shown.map {
        #"{"user":{"id":"\#($0)"},"last_read_seq":\#(watermarks["\($0) \(channel)"] ?? 0)}"#
      }
      json = #"{"read":[\#(rows.joined(separator: ","))]}"#
    case (.post, 4, "read"):
      markCount += 1
      if fault == .dropsConnection(markCount) { return connection.fail(.internalError) }
      if fault == .refusesMark(markCount) {
        status = 503
        break
      }
      if fault == .forgetsMark(markCount) { break }
      let id =
        pieces.count > 1
        ? String(pieces[1].dropFirst("message_id=".count)) : (object(body)["message_id"] as? String) ?? ""
      let key = "\(user(of: authorization)) \(channel)"
      let sequence = sequence(of: id, in: channel)
      if sequence <= watermarks[key] ?? 0 { repeatCount += 1 }
      watermarks[key] = max(watermarks[key] ?? 0, sequence)
      json =
        #"{"read":{"user":{"id":"\#(user(of: authorization))"},"last_read_seq":\#(sequence),"#
        + #""last_read_message_id":"\#(id)"}}"#
    case (.post, 3, "read"):
      let object = object(body)
      let user = object["user_id"] as? String ?? ""
      let channels = object["read_by_channel"] as? [String: String] ?? [:]
      for (channel, id) in channels { watermarks["\(user) \(channel)"] = sequence(of: id, in: channel) }
      json = #"{"results":[]}"#
    case (.post, 4, "messages"):
      registrationCount += 1
      let id = object(body)["id"] as? String ?? ""
      status = fault == .knowsEveryMessage || sequence(of: id, in: channel) > 0 ? 200 : 201
      if fault != .forgetsMessage(registrationCount) { messages[channel, default: []].append(id) }
      let count = messages[channel]?.count ?? 0
      json = #"{"message":{"id":"\#(id)","cid":"\#(channel)","seq":\#(count),"status":"sent"}}"#
    case (.get, 6, "status"):
      let (id, sequence) = (segments[4], sequence(of: segments[4], in: channel))
      let all = members[channel] ?? []
      let readers = all.count { watermarks["\($0) \(channel)"] ?? 0 >= sequence } + (fault == .miscounts ? 1 : 0)
      json =
        #"{"message_id":"\#(id)","cid":"\#(channel)","seq":\#(sequence),"member_count":\#(all.count),"#
        + #""read_count":\#(readers),"status":"\#(readers > 0 ? "read" : "sent")"}"#
    default: status = 404
    }
    connection.respond(stream, status: status) { $0.writeString(json) }
  }

  /// The sequence number of a message, from 1; 0 if there is no such message.
  private func sequence(of id: String, in channel: String) -> Int {
    ((messages[channel] ?? []).firstIndex(of: id) ?? -1) + 1
  }

  private func object(_ body: Data) -> [String: Any] {
    (try? JSONSerialization.jsonObject(with: body) as? [String: Any]) ?? [:]
  }

  /// The user in the token. The signature is not checked.
  private func user(of authorization: String) -> String {
    let parts = authorization.dropFirst("Bearer ".count).split(separator: ".")
    guard parts.count == 3 else { return "" }
    var text = parts[1].replacing("-", with: "+").replacing("_", with: "/")
    text += String(repeating: "=", count: (4 - text.count % 4) % 4)
    return object(Data(base64Encoded: String(text)) ?? Data())["user_id"] as? String ?? ""
  }
}
