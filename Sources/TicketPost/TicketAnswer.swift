internal import Foundation

/// What a gateway says of one ticket (`POST /v1/push/acks`).
package struct TicketAnswer: Hashable, Sendable {
  /// How it went.
  package enum Outcome: Hashable, Sendable {
    /// The message, and so all before it, is delivered to the user.
    case delivered(cid: String, message: String, user: String)
    /// By its code; nothing was changed.
    case refused(code: String)
  }

  package var outcome: Outcome

  package init(_ outcome: Outcome) { self.outcome = outcome }

  /// Whether the message is delivered now, whether or not it was before.
  package var isDelivered: Bool {
    if case .delivered = outcome { true } else { false }
  }

  /// A line for a person: `ok` and what was delivered to whom, or the code and what it means.
  package var line: String {
    switch outcome {
    case .delivered(let cid, let message, let user): "ok \(cid) \(message) \(user)"
    case .refused(let code): Self.meanings[code].map { "\(code): \($0)" } ?? code
    }
  }

  /// The same as a line of JSON, with the names of the API.
  package var json: String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return (try? encoder.encode(Document(self))).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
  }

  private static let meanings = [
    "ticket_invalid": "it is no ticket of this gateway's: cut short, forged, or of a secret that has gone",
    "ticket_expired": "its time is over",
    "channel_not_found": "the channel has been deleted",
    "not_a_member": "the user has left the channel",
    "message_not_found": "the channel does not know the message",
    "message_deleted": "the message has been deleted",
    "store_busy": "too much is under way; post it again",
    "store_unavailable": "the store cannot be reached; post it again",
    "outcome_unknown": "it may or may not have been taken; post it again",
    "clock_jump": "the store's clock is wrong, and nothing is taken until it is right; post it again",
    "data_directory_lost": "the store has lost its data directory, and nothing is taken; post it again",
  ]

  /// The answers to a request, in its order.
  ///
  /// - Returns: nil where the bytes are no such answer, or not to so many tickets.
  static func answers(_ body: [UInt8], count: Int) -> [TicketAnswer]? {
    guard let results = try? JSONDecoder().decode(Results.self, from: Data(body)).results,
      results.count == count
    else { return nil }
    let answers = results.compactMap(\.answer)
    return answers.count == count ? answers : nil
  }

  private struct Results: Decodable { var results: [Document] }

  /// The names are the API's own.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct Document: Codable {
    var ok: Bool
    var cid: String?
    var message_id: String?
    var user_id: String?
    var code: String?

    init(_ answer: TicketAnswer) {
      ok = answer.isDelivered
      switch answer.outcome {
      case .delivered(let cid, let message, let user): (self.cid, message_id, user_id) = (cid, message, user)
      case .refused(let code): self.code = code
      }
    }

    var answer: TicketAnswer? {
      if ok, let cid, let message_id, let user_id {
        return TicketAnswer(.delivered(cid: cid, message: message_id, user: user_id))
      }
      return ok ? nil : code.map { TicketAnswer(.refused(code: $0)) }
    }
  }
}
