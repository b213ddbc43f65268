/// Form of the requests of a walk.
package enum RequestForm: Sendable, Hashable {
  /// `POST …/read?message_id=ID`, no body.
  case query
  /// `POST …/read` with a JSON body.
  case body
  /// `mark_read` as a frame to the store.
  case frame
  /// `POST …/messages` with a new message.
  case register
  /// `GET …/read-state` of channels with this number of members.
  case readState(memberCount: Int)
  /// `GET …/messages/ID/status`.
  case status
  /// `GET /HSET/CHANNEL/USER/NUMBER` at webdis, as a self-made service would keep a watermark in Redis.
  case hashSet

  /// Status of a success.
  package var successStatus: Int { self == .register ? 201 : 200 }

  /// Whether each request changes state: such a walk has an end, others start again.
  var isWrite: Bool {
    switch self {
    case .query, .body, .frame, .register, .hashSet: true
    case .readState, .status: false
    }
  }

  var hasBody: Bool { self == .body || self == .register }

  /// Whether the method is POST; otherwise it is GET.
  var isPost: Bool { self == .query || hasBody }
}
