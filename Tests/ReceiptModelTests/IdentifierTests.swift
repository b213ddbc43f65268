import Testing

@testable import ReceiptModel

/// The character sets and lengths of API.md's first section, written out here as that page says them.
@Suite("Identifiers")
struct IdentifierTests {
  enum Kind: String, CaseIterable, Sendable {
    case type, channelID, user, message, role

    func accepts(_ bytes: [UInt8]) -> Bool {
      let span = bytes.span.bytes
      return switch self {
      case .type: Identifier.isType(span)
      case .channelID: Identifier.isChannelID(span)
      case .user: Identifier.isUser(span)
      case .message: Identifier.isMessage(span)
      case .role: Identifier.isRole(span)
      }
    }

    /// Beside letters and digits.
    var punctuation: String {
      switch self {
      case .type: "_-"
      case .channelID: "_!-"
      case .user: "@_.-"
      case .role: "_.-"
      // Printable ASCII without space and slash.
      case .message: ##"!"#$%&'()*+,-.:;<=>?@[\]^_`{|}~"##
      }
    }

    var longest: Int {
      switch self {
      case .type, .role: 64
      case .channelID, .user, .message: 128
      }
    }
  }

  static let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

  @Test("each of the 256 byte values, alone, first and last", arguments: Kind.allCases)
  func bytes(kind: Kind) {
    let allowed = Set((Self.letters + kind.punctuation).utf8)
    for byte in UInt8.min...UInt8.max {
      let isAllowed = allowed.contains(byte)
      #expect(kind.accepts([byte]) == isAllowed, "\(byte)")
      #expect(kind.accepts([byte] + Array("abcdefghij".utf8)) == isAllowed, "\(byte) first")
      #expect(kind.accepts(Array("abcdefghij".utf8) + [byte]) == isAllowed, "\(byte) last")
    }
  }

  @Test("lengths", arguments: Kind.allCases)
  func lengths(kind: Kind) {
    #expect(!kind.accepts([]))
    #expect(kind.accepts(Array(repeating: UInt8(ascii: "a"), count: 1)))
    #expect(kind.accepts(Array(repeating: UInt8(ascii: "a"), count: kind.longest)))
    #expect(!kind.accepts(Array(repeating: UInt8(ascii: "a"), count: kind.longest + 1)))
    #expect(!kind.accepts(Array(repeating: UInt8(ascii: "a"), count: 4096)))
  }

  @Test(
    "no text beyond ASCII, and no blanks",
    arguments: ["é", "日本", "a\u{301}", "🙂", "\u{212A}", "\u{0}", "a\nb", "a b", "a/b", "a\u{7F}"]
  )
  func unicode(text: String) {
    for kind in Kind.allCases { #expect(!kind.accepts(Array(text.utf8)), "\(kind)") }
  }

  static let good: [String] = [
    "team:general", "t:x", "messaging:!members-Bv3xF_1", "T_-9:A!_-z", ("a" * 64) + ":" + ("b" * 128), "a:!",
  ]

  @Test("cids", arguments: good)
  func goodCIDs(text: String) {
    #expect(Identifier.isCID(text))
    #expect(text.utf8.count <= Identifier.cidLengthMax)
    #expect(Identifier.colonOffset(text) == text.utf8.prefix { $0 != UInt8(ascii: ":") }.count)
  }

  static let bad: [String] = [
    "", ":", "team", "team:", ":general", "team::general", "team:gen:eral", "te!am:general", "te.am:general",
    "team:gen.eral", "team:gen eral", "team:gen/eral", " team:general", "team:general ", "team:générale",
    ("a" * 65) + ":b", "a:" + ("b" * 129), ("a" * 200) + ":b", "a" * 300, "team:general\u{0}", "team@x:y",
    "team:user@x",
  ]

  @Test("not cids", arguments: bad)
  func badCIDs(text: String) {
    #expect(!Identifier.isCID(text))
  }
}

private func * (text: String, count: Int) -> String { String(repeating: text, count: count) }

/// XXH64 against constants from elsewhere: those of xxHash's own self-test, and what `xxhsum -H1` (0.8.1) says of other input.
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
  func selfTest(vector: Vector) {
    var generator = Self.prime32
    let bytes = (0..<vector.length).map { _ in
      defer { generator &*= Self.prime64 }
      return UInt8(truncatingIfNeeded: generator >> 56)
    }
    #expect(StableHash.hash(bytes, seed: vector.seed) == vector.hash)
  }

  /// Byte i is 7i + 3; the lengths go to the edges of the words of 4 and 8 bytes and of the stripes of 32.
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

  @Test("lengths", arguments: hashesOfLengths)
  func lengths(count: Int, hash: UInt64) {
    let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 7 + 3) }
    #expect(StableHash.hash(bytes) == hash)
    // From an odd address, too.
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

  @Test("texts, and the shard of a channel", arguments: hashesOfTexts)
  func texts(text: String, hash: UInt64) {
    #expect(StableHash.hash(Array(text.utf8)) == hash)
    for count in [1, 2, 3, 16, 1000, 65_535] {
      #expect(ShardID.owning(text, count: count) == ShardID(UInt16(hash % UInt64(count))))
    }
  }
}
