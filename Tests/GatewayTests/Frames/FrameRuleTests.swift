import ReceiptWire
import Testing

@testable import Gateway

/// The rules of `POST /v1/frames` and the layouts of the frames.
@Suite struct FrameRuleTests {
  private static let accepted = FrameKind.allCases.filter { FrameRule.all[Int($0.rawValue)] != nil }

  @Test func onlyRequestsAboutAChannelHaveRules() {
    #expect(!Self.accepted.isEmpty)
    for spec in RequestSpec.all where Self.accepted.contains(spec.kind) {
      #expect(spec.fields.hasPrefix(spec.kind.isCommand ? "cid counter" : "cid"), "\(spec.name)")
    }
    for kind in Self.accepted { #expect(kind.isRequest, "\(kind)") }
  }

  /// A rule that misses a field would forward what the store cannot parse.
  @Test(arguments: FrameRuleTests.accepted)
  func aRuleHasTheFieldsOfItsLayout(_ kind: FrameKind) throws {
    let rule = try #require(FrameRule.all[Int(kind.rawValue)])
    let spec = try #require(RequestSpec.all.first { $0.kind == kind })
    let layout = Self.names(spec.fields).dropFirst(kind.isCommand ? 2 : 1)
    let fields = rule.fields.flatMap(Self.names)
    #expect(layout.count == fields.count)
    for (name, names) in zip(layout, fields) { #expect(names.contains(name)) }
  }

  /// The names of a layout's fields.
  private static func names(_ layout: String) -> [String] {
    var names: [String] = []
    var depth = 0
    for word in layout.split(separator: " ") {
      if depth == 0 { names.append(String(word.prefix { $0 != ":" && $0 != "?" })) }
      for character in word { depth += character == "[" ? 1 : character == "]" ? -1 : 0 }
    }
    return names
  }

  /// The names that each field of a rule may have in a layout.
  private static func names(_ field: FrameRule.Field) -> [Set<String>] {
    switch field {
    case .user, .userOrNone: [["user"]]
    case .message, .messageOrNone: [["message"]]
    case .roleOrNone: [["role"]]
    case .memberFlags, .namesFlag: [["flags"]]
    case .created: [["created", "since"]]
    case .acked: [["acked"]]
    case .optionalNumber: [["unread_epoch", "cursor"]]
    case .registrationFlags: [["flags"], ["mentions"]]
    case .viewer: [["@viewer"]]
    case .limit: [["limit"]]
    case .listCursor: [["cursor"]]
    case .memberList: [["list"]]
    case .listOrder: [["order"]]
    case .note: [["note"]]
    case .messages: [["messages"]]
    case .users: [["users"]]
    case .members: [["members", "add"]]
    case .removedMembers: [["remove"]]
    case .options: [["patch"]]
    }
  }
}
