import Foundation
import NIOCore
import ReceiptModel
import TestSupport
import Testing

@testable import Gateway

/// Tickets, compared with tickets that Python made after Proto/tickets.md (Proto/vectors/tickets.json).
@Suite struct TicketTests {
  private struct Vectors: Decodable {
    struct Made: Decodable {
      var name: String
      var version: UInt8
      var secret: String
      var expiry: UInt64
      var shard: UInt16
      var place: String
      var device: String
      var text: String
    }
    struct Refused: Decodable {
      var name: String
      var text: String
    }
    var secrets: [String]
    var store: String
    var tickets: [Made]
    var refused: [Refused]
  }

  private let vectors: Vectors
  private let codec: TicketCodec

  init() throws {
    let file = packageRoot.appendingPathComponent("Proto/vectors/tickets.json")
    vectors = try JSONDecoder().decode(Vectors.self, from: Data(contentsOf: file))
    codec = Self.codec(vectors.secrets, of: vectors.store)
  }

  private static func codec(_ secrets: [String], of store: String? = nil) -> TicketCodec {
    let codec = TicketCodec(keys: TicketKeys(secrets: secrets.map { Array($0.utf8) }))
    if let store {
      let halves = bytes(store).reduce(into: (UInt64(0), UInt64(0))) { halves, byte in
        halves = (halves.0 << 8 | halves.1 >> 56, halves.1 << 8 | UInt64(byte))
      }
      codec.bind(to: SessionID(high: halves.0, low: halves.1))
    }
    return codec
  }

  private static func bytes(_ hex: String) -> [UInt8] {
    let digits = Array(hex.utf8).map { UInt8(strtoul(String(UnicodeScalar($0)), nil, 16)) }
    return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
  }

  /// A ticket as `shard place device`, or its refusal.
  private func read(_ text: String, now: Int64 = 0, _ codec: TicketCodec? = nil) -> String {
    let text = Array(text.utf8)
    let codec = codec ?? self.codec
    do throws(TicketRefusal) {
      let ticket = try codec.read(text.span.bytes, now: now)
      let place = ticket.place.withUnsafeBytes { $0.map { String(format: "%02x", $0) }.joined() }
      return "\(ticket.shard.rawValue) \(place) \(ticket.device.text)"
    } catch {
      return "\(error)"
    }
  }

  @Test func ticketsFromPythonAreRead() {
    #expect(vectors.tickets.count == 10)
    for made in vectors.tickets {
      #expect(made.text.utf8.count <= TicketCodec.characterCountMax)
      #expect(read(made.text) == "\(made.shard) \(made.place) \(made.device)", "\(made.name)")
    }
  }

  @Test func ticketsEqualThoseFromPython() {
    for made in vectors.tickets where made.version == 2 {
      let codec = Self.codec([made.secret], of: vectors.store)
      let (place, device) = (Self.bytes(made.place), Array(made.device.utf8))
      #expect(place.count <= TicketCodec.placeByteCountMax && device.count <= TicketCodec.deviceByteCountMax)
      var buffer = ByteBuffer()
      codec.write(
        expiry: made.expiry,
        shard: ShardID(made.shard),
        place: place.span.bytes,
        device: device.span.bytes,
        into: &buffer
      )
      #expect(String(buffer: buffer) == made.text, "\(made.name)")
    }
  }

  @Test func invalidTicketsAreRefused() {
    #expect(vectors.refused.count == 22)
    for refused in vectors.refused { #expect(read(refused.text) == "invalid", "\(refused.name)") }
  }

  /// Every character is significant, and every byte is signed.
  @Test func changedCharacterIsRefused() {
    for made in vectors.tickets {
      for index in made.text.indices {
        for other in "A-_z9" where other != made.text[index] {
          var text = made.text
          text.replaceSubrange(index...index, with: String(other))
          #expect(read(text) == "invalid", "\(text)")
        }
      }
    }
  }

  @Test func ticketExpiresAtItsSecond() {
    let made = vectors.tickets[0]
    let expiry = Int64(made.expiry) * 1_000
    #expect(read(made.text, now: expiry - 1) != "expired")
    #expect(read(made.text, now: expiry) == "expired")
    // A forged ticket is invalid rather than expired.
    #expect(read(vectors.refused[12].text, now: expiry) == "invalid")
  }

  /// Tickets of the file's second secret are accepted until it is removed.
  @Test func earlierSecretIsAcceptedWhileConfigured() {
    let current = Self.codec([vectors.secrets[0]], of: vectors.store)
    let byEarlier = vectors.tickets[2]
    #expect(byEarlier.name == "by the earlier secret")
    #expect(read(byEarlier.text) != "invalid")
    #expect(read(byEarlier.text, now: 0, current) == "invalid")
  }

  /// A restored store counts as another store, because its channels, rows and messages have other numbers.
  @Test func ticketsOfOtherStoresAreRefused() {
    let other = Self.codec(vectors.secrets, of: String(vectors.store.reversed()))
    let none = Self.codec(vectors.secrets)
    for made in vectors.tickets {
      #expect(
        read(made.text, now: 0, other) == (made.version == 2 ? "invalid" : read(made.text)),
        "\(made.name)"
      )
      #expect(read(made.text, now: 0, none) == (made.version == 2 ? "storeUnknown" : read(made.text)))
    }
    // Bound to the right store, the same codec accepts the ticket.
    other.bind(to: SessionID(high: 0x0001_0203_0405_0607, low: 0x0809_0A0B_0C0D_0E0F))
    #expect(read(vectors.tickets[0].text, now: 0, other) == read(vectors.tickets[0].text))
  }

  /// One key id in 256 belongs to two secrets.
  @Test func secretsMayShareKeyID() throws {
    let one = Array(vectors.secrets[0].utf8)
    let other = try #require(
      (0..<10_000).lazy.map { Array("another secret of enough bytes, number \($0)".utf8) }
        .first { TicketKeys(secrets: [$0]).currentID == TicketKeys(secrets: [one]).currentID }
    )
    let both = TicketCodec(keys: TicketKeys(secrets: [other, one]))
    both.bind(to: SessionID(high: 0x0001_0203_0405_0607, low: 0x0809_0A0B_0C0D_0E0F))
    #expect(read(vectors.tickets[0].text, now: 0, both) == read(vectors.tickets[0].text))
  }
}
