/// The layout of a request's fields and of its reply's.
///
/// Each stands beside the typed readers and writers of its request; tests check both against the golden vectors.
/// `POST /v1/frames` states its rules itself, in the gateway.
///
/// Fields are in order, separated by spaces outside of brackets, with the cid and a command's counter. A field is
/// `name`, `name:encoding` or `name:[fields]`. Without an encoding it is a string if the name is one of a string, else
/// a varint. `@x` names a compound field of Proto/frames.md.
package struct RequestSpec: Sendable {
  package let kind: FrameKind
  /// Name in Proto/frames.md.
  package let name: String
  package let fields: String
  package let reply: String

  init(_ kind: FrameKind, _ name: String, _ fields: String = "", reply: String = "") {
    self.kind = kind
    self.name = name
    self.fields = fields
    self.reply = reply
  }

  /// All requests, by their numbers.
  package static let all: [RequestSpec] = [
    channelRequests, markRequests, pageRequests, pushRequests, settingsRequests, userRequests, backupRequests,
  ].flatMap { $0 }.sorted { $0.kind.rawValue < $1.kind.rawValue }
}
