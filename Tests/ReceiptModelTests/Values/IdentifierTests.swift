import Testing

@testable import ReceiptModel

/// The character and length ranges of docs/guides/backend.md, written out here independently.
@Suite("Identifiers")
struct IdentifierTests {
  enum Kind: String, CaseIterable, Sendable {
    case type, role

    func accepts(_ bytes: [UInt8]) -> Bool {
      switch self {
      case .type: Identifier.isType(bytes.span.bytes)
      case .role: Identifier.isRole(bytes.span.bytes)
      }
    }

    /// Allowed besides letters and digits.
    var punctuation: String {
      switch self {
      case .type: "_-"
      case .role: "_.-"
      }
    }
  }

  static let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

  @Test("each of the 256 byte values, alone, first and last", arguments: Kind.allCases)
  func everyByteValueIsCheckedAloneFirstAndLast(kind: Kind) {
    let allowed = Set((Self.letters + kind.punctuation).utf8)
    for byte in UInt8.min...UInt8.max {
      let isAllowed = allowed.contains(byte)
      #expect(kind.accepts([byte]) == isAllowed, "\(byte)")
      #expect(kind.accepts([byte] + Array("abcdefghij".utf8)) == isAllowed, "\(byte) first")
      #expect(kind.accepts(Array("abcdefghij".utf8) + [byte]) == isAllowed, "\(byte) last")
    }
  }

  @Test("lengths of types and roles", arguments: Kind.allCases)
  func typesAndRolesHaveLengthLimits(kind: Kind) {
    #expect(!kind.accepts([]))
    #expect(kind.accepts(Array(repeating: UInt8(ascii: "a"), count: 1)))
    #expect(kind.accepts(Array(repeating: UInt8(ascii: "a"), count: 64)))
    #expect(!kind.accepts(Array(repeating: UInt8(ascii: "a"), count: 65)))
    #expect(!kind.accepts(Array(repeating: UInt8(ascii: "a"), count: 4096)))
  }

  @Test(
    "types and roles with a whole multi-byte character are refused",
    arguments: Kind.allCases,
    ["é", "日", "🙂"]
  )
  func wholeMultiByteCharacterIsRefused(kind: Kind, character: String) {
    for text in [character, character + "a", "a" + character, "a" + character + "a"] {
      #expect(!kind.accepts(Array(text.utf8)), "\(text)")
    }
  }

  private static func isID(_ bytes: [UInt8]) -> Bool {
    let isID = Identifier.isID(bytes.span.bytes)
    #expect(Identifier.isUser(bytes.span.bytes) == isID && Identifier.isMessage(bytes.span.bytes) == isID)
    let cid = Array("a:".utf8) + bytes
    #expect(Identifier.isCID(cid.span.bytes) == isID)
    return isID
  }

  /// The rule in other words: the standard library decodes it without repairs, and it has no control characters.
  private static func isIDByStandardLibrary(_ bytes: [UInt8]) -> Bool {
    guard (1...255).contains(bytes.count), let text = String(validating: bytes, as: UTF8.self) else {
      return false
    }
    return text.unicodeScalars.allSatisfy { $0.properties.generalCategory != .control }
  }

  @Test("ids: every Unicode scalar value except control characters is valid, alone and between others")
  func everyScalarExceptControlCharactersIsValid() {
    for value in UInt32(0)...0x10FFFF {
      guard let scalar = Unicode.Scalar(value) else { continue }
      let bytes = Array(String(Character(scalar)).utf8)
      let isAllowed = scalar.properties.generalCategory != .control
      if Identifier.isID(bytes.span.bytes) != isAllowed { Issue.record("U+\(String(value, radix: 16))") }
      let between = Array("a".utf8) + bytes + Array("é".utf8)
      if Identifier.isID(between.span.bytes) != isAllowed {
        Issue.record("U+\(String(value, radix: 16)) between")
      }
    }
  }

  @Test(
    "short byte strings are valid ids where the standard library finds valid UTF-8 without control characters"
  )
  func shortIDsAreValidWhereStandardLibraryAgrees() {
    for first in UInt8.min...UInt8.max {
      for second in UInt8.min...UInt8.max {
        let bytes = [first, second]
        if Identifier.isID(bytes.span.bytes) != Self.isIDByStandardLibrary(bytes) { Issue.record("\(bytes)") }
      }
    }
    let edges: [UInt8] = [
      0x1F, 0x20, 0x41, 0x7E, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xC3, 0xDF, 0xE0,
      0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
      0xF1, 0xF3, 0xF4, 0xF5, 0xFF,
    ]
    for first in edges {
      for second in edges {
        for third in edges {
          let bytes = [first, second, third]
          if Identifier.isID(bytes.span.bytes) != Self.isIDByStandardLibrary(bytes) {
            Issue.record("\(bytes)")
          }
          for fourth in edges {
            let bytes = [first, second, third, fourth]
            if Identifier.isID(bytes.span.bytes) != Self.isIDByStandardLibrary(bytes) {
              Issue.record("\(bytes)")
            }
          }
        }
      }
    }
  }

  static let ids: [String] = [
    "a", "auth0|5f7c", "@bob:example.org", "a/b", "Zoë", "Zoe\u{308}", "日本", "🙂", ".", "..", "a b", " ",
    "a,b", "%2F", "\"", "\\", "'; DROP TABLE",
    "\u{200B}", "\u{FEFF}", "\u{2028}", "\u{FFFF}", "a" * 255, "é" * 127, "🙂" * 63 + "abc", "type:id", "::",
    ":",
  ]

  @Test("ids in the formats of other systems are valid", arguments: ids)
  func idsOfOtherSystemsAreValid(text: String) {
    #expect(Self.isID(Array(text.utf8)))
  }

  static let notIDs: [[UInt8]] = [
    [], Array("a\u{0}".utf8), Array("a\nb".utf8), Array("\u{7F}".utf8), Array("\u{85}".utf8),
    Array("\u{9F}".utf8), Array(("a" * 256).utf8),
    Array(("é" * 128).utf8), Array(("🙂" * 64).utf8), Array(("a" * 4096).utf8),
    // Overlong, a surrogate, above U+10FFFF, truncated, a lone continuation byte, Latin-1.
    [0xC0, 0xAF], [0xC1, 0xBF], [0xE0, 0x80, 0xAF], [0xF0, 0x80, 0x80, 0xAF], [0xED, 0xA0, 0x80],
    [0xF4, 0x90, 0x80, 0x80], [0xC3], [0xE2, 0x82],
    [0xF0, 0x9F, 0x99], [0x80], [0xE9], [0xFF], [0xFE, 0xFF],
  ]

  @Test("invalid ids are refused", arguments: notIDs)
  func invalidIDsAreRefused(bytes: [UInt8]) {
    #expect(!Self.isID(bytes))
  }

  static let good: [(String, Int)] = [
    ("team:general", 4), ("t:x", 1), ("messaging:!members-Bv3xF_1", 9), ("T_-9:A!_-z", 4),
    (("a" * 64) + ":" + ("b" * 255), 64), ("a:!", 1),
    ("team::general", 4), ("team:gen:eral", 4), ("team:@bob:example.org", 4), ("team:gen/eral", 4),
    ("team: ", 4), ("team:générale", 4),
    // A combining mark after the colon makes one `Character` of both.
    ("team:\u{301}a", 4),
  ]

  @Test("cids are split at the first colon", arguments: good)
  func cidsAreSplitAtFirstColon(text: String, colon: Int) {
    #expect(Identifier.isCID(text))
    #expect(text.utf8.count <= Identifier.cidLengthMax)
    #expect(Identifier.colonOffset(text) == colon)
    let parts = Identifier.parts(cid: text)
    #expect(Array(parts.type.utf8) == Array(text.utf8.prefix(colon)))
    #expect(Array(parts.id.utf8) == Array(text.utf8.dropFirst(colon + 1)))
  }

  static let bad: [String] = [
    "", ":", "team", "team:", ":general", "te!am:general", "te.am:general", " team:general", "té:general",
    ("a" * 65) + ":b", "a:" + ("b" * 256),
    ("a" * 200) + ":b", "a" * 300, "team:general\u{0}", "team:a\u{85}", "team@x:y", "\u{0}a:b",
  ]

  @Test("invalid cids are refused", arguments: bad)
  func invalidCIDsAreRefused(text: String) {
    #expect(!Identifier.isCID(text))
  }

  @Test("texts are compared byte by byte")
  func textsAreComparedByteByByte() {
    let (one, two) = ("Zo\u{EB}", "Zoe\u{308}")
    #expect(one == two, "as strings they are equal")
    #expect(ExactText(one) != ExactText(two) && !one.isExactly(two) && one.isExactly(one))
    #expect(Set([ExactText(one), ExactText(two), ExactText(one)]).count == 2)
    #expect(
      ExactText(two) < ExactText(one) && !(ExactText(one) < ExactText(two))
        && !(ExactText(one) < ExactText(one))
    )
  }

  @Test(
    "the name of a user's index is no valid cid, and differs for every user",
    arguments: ["alice", "auth0|5f7c", "messaging:general", "@bob:example.org", ":", "a:b:c", "Zoë"]
  )
  func indexNameIsNoCID(user: String) {
    let name = IndexName.bytes(of: Array(user.utf8).span.bytes)
    #expect(IndexName.isIndex(name) && !Identifier.isCID(name.span.bytes))
    #expect(IndexName.user(name) == Array(user.utf8))
    #expect(Array(IndexName.text(of: user).utf8) == name)
    // Directories written by older versions have ids without a colon: those keep the id as the name.
    #expect((name == Array(user.utf8)) == !user.utf8.contains(UInt8(ascii: ":")))
    #expect(!IndexName.isIndex(Array("messaging:\(user)".utf8)))
  }

  static let wide: [(Effect, Bool)] = {
    let number = ChannelNumber(1)
    func rowAssigned(_ user: String) -> ChannelEffect {
      .rowAssigned(
        MemberOrdinal(0),
        RowRecord(user: user, role: "", hidesHistory: false, joined: .zero, joinedAt: .none, read: .zero)
      )
    }
    func row(_ user: String) -> Effect { .channel(number, rowAssigned(user)) }
    func message(_ id: String, _ sender: String) -> Effect {
      .channel(
        number,
        .messageAssigned(
          SequenceNumber(1),
          MessageRecord(id: id, sender: sender, flags: [], registeredAt: .none, createdAt: .none)
        )
      )
    }
    func head(_ cid: String) -> Effect {
      .channel(number, .channelAssigned(cid: cid, created: .none, own: OptionPatch()))
    }
    let membership = Membership(
      cid: "a:b",
      channel: number,
      row: nil,
      isMember: false,
      joinedAt: .none,
      epoch: 0
    )
    var wideMembership = membership
    wideMembership.cid = "a:b c"
    return [
      (row("alice"), false), (row("alice@example.org"), false), (row("auth0|5f7c"), true),
      (row("a" * 129), true), (row(""), false),
      (message("m-1:x", "alice"), false), (message("m-1", ""), false), (message("m/1", "alice"), true),
      (message("m", "a:b"), true),
      (head("team:general"), false), (head("team:gen.eral"), true), (head("alice"), false),
      (head("\u{0}a:b"), true), (head("Zoë"), true),
      (.channel(number, .inThread(SequenceNumber(1), rowAssigned("alice"))), false),
      (.channel(number, .inThread(SequenceNumber(1), rowAssigned("a b"))), true),
      (.shard(.membershipQueued(1, MembershipChange(user: "alice", membership))), false),
      (.shard(.membershipQueued(1, MembershipChange(user: "a|b", membership))), true),
      (.shard(.membershipQueued(1, MembershipChange(user: "alice", wideMembership))), true),
      (.channel(number, .membershipAssigned(position: 0, membership)), false),
      (.channel(number, .membershipAssigned(position: 0, wideMembership)), true),
      (.channel(number, .rowLeft(MemberOrdinal(0), at: .none)), false),
    ]
  }()

  @Test("effects with ids that older versions cannot read are recognised", arguments: wide)
  func effectsWithWideIDsAreRecognised(effect: Effect, isWide: Bool) {
    #expect(effect.hasWideIDs == isWide)
  }
}

private func * (text: String, count: Int) -> String { String(repeating: text, count: count) }

/// XXH64 compared with independent constants: those of xxHash's own self-test, and the output of `xxhsum -H1` (0.8.1)
/// for other input.
@Suite("Stable hash")
struct StableHashTests {
  private static let prime32: UInt64 = 2_654_435_761
  private static let prime64: UInt64 = 11_400_714_785_074_694_797

  struct Vector: Sendable {
    let length: Int
    let seed: UInt64
    let hash: UInt64
    init(_ length: Int, _ seed: UInt64, _ hash: UInt64) {
      self.length = length
      self.seed = seed
      self.hash = hash
    }
  }

  static let published: [Vector] = [
    Vector(0, 0, 0xEF46_DB37_51D8_E999), Vector(0, prime32, 0xAC75_FDA2_929B_17EF),
    Vector(1, 0, 0xE934_A84A_DB05_2768), Vector(1, prime32, 0x5014_6076_43A9_B4C3),
    Vector(4, 0, 0x9136_A0DC_A574_57EE), Vector(14, 0, 0x8282_DCC4_994E_35C8),
    Vector(14, prime32, 0xC3BD_6BF6_3DEB_6DF0), Vector(222, 0, 0xB641_AE8C_B691_C174),
    Vector(222, prime32, 0x20CB_8AB7_AE10_C14A),
  ]

  @Test("xxHash's own self-test", arguments: published)
  func hashPassesItsSelfTest(vector: Vector) {
    var generator = Self.prime32
    let bytes = (0..<vector.length).map { _ in
      defer { generator &*= Self.prime64 }
      return UInt8(truncatingIfNeeded: generator >> 56)
    }
    #expect(StableHash.hash(bytes, seed: vector.seed) == vector.hash)
  }

  /// Byte i is 7i + 3. The lengths cover the edges of the words of 4 and 8 bytes and of the stripes of 32.
  static let hashesOfLengths: [(Int, UInt64)] = [
    (0, 0xef46_db37_51d8_e999), (1, 0x1f25_c8d0_bc1f_4bb6), (2, 0xf5be_dec2_3270_6303),
    (3, 0x31d2_363f_52e5_64c9), (4, 0x9bb6_4b7d_66ee_9fda), (5, 0xc760_8efd_db70_51fe),
    (7, 0x9a7b_1499_59ce_60d8), (8, 0xdab9_9d95_c6f9_0092), (9, 0x170b_b6bf_975b_4c02),
    (11, 0x7a52_cc94_57cf_1a1f), (12, 0xd52e_4078_33af_5133), (15, 0x1b47_cb82_43cc_8e32),
    (16, 0x4348_5023_2b78_7be2), (31, 0xa2aa_5f33_cc4a_6119), (32, 0x23c3_c17e_f790_fd97),
    (33, 0x50a7_cfc7_ba58_8784), (39, 0x880b_beea_606e_4b37), (40, 0xb620_306b_253d_76b6),
    (47, 0xa7c5_465c_c5ad_205e), (63, 0x5e3e_54b4_31c7_493c), (64, 0x0eb6_4b3e_f6ee_b01f),
    (65, 0xa383_b724_b2bd_12f1), (100, 0xa61f_8d4c_170f_e531), (127, 0x0c2b_3713_c3ed_beb3),
    (128, 0x46fb_cfbf_0150_793f), (255, 0x39ae_55a2_9989_206f), (256, 0x00cf_c520_7dd8_e201),
    (1000, 0x5f23_5fa0_33f1_a3fb),
  ]

  @Test("xxHash agrees with its test values at all lengths", arguments: hashesOfLengths)
  func xxHashAgreesWithTestValuesAtAllLengths(count: Int, hash: UInt64) {
    let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 7 + 3) }
    #expect(StableHash.hash(bytes) == hash)
    // From an odd address too.
    let shifted = [0] + bytes
    let hashOfShifted = StableHash.hash(shifted.span.bytes.extracting(1...))
    #expect(hashOfShifted == hash)
  }

  static let hashesOfTexts: [(String, UInt64)] = [
    ("a", 0xd24e_c4f1_a98c_6e5b), ("abc", 0x44bc_2cf5_ad77_0999), ("team:general", 0x6caa_e711_4143_bb1c),
    ("dm:!members-Bv3xF", 0xa39f_4e81_0928_1ad4), ("messaging:room-1", 0xf786_3372_03e2_6fb8),
    ("livestream:x", 0x0e02_a227_8acd_5315), ("team", 0xa876_8a1b_8021_0233),
    ("messaging", 0x7d00_ea8b_c566_6246), ("alice", 0x73a3_ea48_5f2e_6049),
    ("bob@example.com", 0x99d5_1d92_e864_c38f),
  ]

  @Test(
    "xxHash agrees with its test values for texts, and for the shard of a channel",
    arguments: hashesOfTexts
  )
  func xxHashAgreesWithTestValuesForTexts(text: String, hash: UInt64) {
    #expect(StableHash.hash(Array(text.utf8)) == hash)
    for count in [1, 2, 3, 16, 1000, 65_535] {
      #expect(ShardID.owning(text, count: count) == ShardID(UInt16(hash % UInt64(count))))
    }
  }
}
