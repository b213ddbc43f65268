import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import Synchronization
import TestSupport
import Testing

/// Runs mutated vectors through every decoder. Each is refused or read; none traps or reads outside its bytes. The
/// bytes end right before an unreadable page, so that reading one byte too far ends the process.
@Suite(.computing)
struct FuzzTests {
  static let seeds = TestRun.seeds(8, long: 80)

  /// The effects that were read from random bytes, over the finished seeds.
  private static let effectsTaken = Mutex<(done: Int, counts: [UInt8: Int])>((0, [:]))

  @Test(arguments: seeds)
  func mutatedFramesNeverTrap(_ seed: UInt64) {
    var generator = SplitMix64(printing: seed, of: "fuzz, mutatedFrames")
    let page = GuardedPage()
    let corpus = Vectors.frames.map { [UInt8](hex: $0.hex) } + Vectors.badFrames.map { [UInt8](hex: $0.hex) }
    var accepted = 0
    for _ in 0..<20_000 {
      let bytes = mutated(generator.pick(corpus), corpus, using: &generator)
      page.withBytes(bytes) { span in
        guard case .frame(let header, let count)? = try? FrameDecoder(lengthLimit: 4096).next(span, at: 0)
        else {
          return
        }
        let payload = span.extracting(FrameHeader.byteCount..<(FrameHeader.byteCount + count))
        if (try? parse(FrameType(header), header.flags, payload)) != nil { accepted += 1 }
        // Each payload also as a random other kind: no decoder may rely on the kind check before it.
        _ = try? parse(generator.pick(FrameType.allCases), header.flags, payload)
      }
    }
    // Mutations that are all refused, or all accepted, would test nothing.
    #expect(accepted > 500 && accepted < 19_500, "seed \(seed): \(accepted)")
  }

  /// Mutated events that are accepted must come back equal after writing and reading them again.
  @Test(arguments: seeds)
  func mutatedEventsNeverTrap(_ seed: UInt64) throws {
    var generator = SplitMix64(printing: seed, of: "fuzz, mutatedEvents", offset: 500)
    let page = GuardedPage()
    let corpus = (Vectors.frames.map(\.hex) + Vectors.badFrames.map(\.hex)).map { [UInt8](hex: $0) }
      .filter { $0.count > FrameHeader.byteCount && [0x08, 0xB0].contains($0[4]) }
      .map { Array($0.dropFirst(FrameHeader.byteCount)) }
    var (events, replies) = (0, 0)
    for _ in 0..<20_000 {
      let bytes = mutated(generator.pick(corpus), corpus, using: &generator)
      try page.withBytes(bytes) { span in
        if let fields = try? EventsFields(span) {
          events += 1
          var again = ByteBuffer()
          fields.write(into: &again)
          let second = try EventsFields(again.readableBytesSpan)
          #expect(second == fields, "seed \(seed)")
        }
        if let subscribed = try? SubscribedFields(span) {
          replies += 1
          var again = ByteBuffer()
          subscribed.write(into: &again)
          let second = try SubscribedFields(again.readableBytesSpan)
          #expect(second == subscribed, "seed \(seed)")
        }
      }
    }
    for accepted in [events, replies] {
      #expect(accepted > 50 && accepted < 19_800, "seed \(seed): \(events) \(replies)")
    }
  }

  /// Mutated batches and pages that are accepted must come back equal after writing and reading them again.
  @Test(arguments: seeds)
  func mutatedBatchesAndPagesNeverTrap(_ seed: UInt64) throws {
    var generator = SplitMix64(printing: seed, of: "fuzz, mutatedBatchesAndPages", offset: 1000)
    let page = GuardedPage()
    let corpus =
      Vectors.log.batches.map { [UInt8](hex: $0.hex) } + Vectors.log.pages.map { [UInt8](hex: $0.hex) }
      + Vectors.log.badBatches.map { [UInt8](hex: $0.hex) }
      // Each effect in a batch of its own, so that mutations hit its fields more often.
      + Vectors.log.effects.map { [1, 1, 0, 0, 1] + [UInt8](hex: $0.hex) }
    var (batches, pages) = (0, 0)
    for _ in 0..<20_000 {
      let bytes = mutated(generator.pick(corpus), corpus, using: &generator)
      try page.withBytes(bytes) { span in
        if let batch = try? LogBatch(span) {
          batches += 1
          var effects = ByteBuffer()
          for effect in batch.effects { effects.writeEffect(effect) }
          var again = ByteBuffer()
          LogBatch.write(
            index: batch.index,
            time: batch.time,
            sessions: batch.sessions,
            effectCount: batch.effects.count,
            effects: effects,
            into: &again
          )
          let second = try LogBatch(again.readableBytesSpan)
          #expect(second == batch, "seed \(seed)")
        }
        if let page = try? Page(span) {
          pages += 1
          var again = ByteBuffer()
          page.write(into: &again)
          let second = try Page(again.readableBytesSpan)
          #expect(second == page, "seed \(seed)")
        }
      }
    }
    for accepted in [batches, pages] {
      #expect(accepted > 50 && accepted < 19_800, "seed \(seed): \(batches) \(pages)")
    }
  }

  /// Random bytes through each reader alone: accepted values must come back equal after writing and reading them again.
  @Test(arguments: seeds)
  func randomBytesNeverTrapAnyReader(_ seed: UInt64) throws {
    var generator = SplitMix64(printing: seed, of: "fuzz, randomBytes", offset: 2000)
    let page = GuardedPage()
    // LogVectorTests checks that there is a vector of each effect.
    let effects = Set(Vectors.log.effects.map { [UInt8](hex: $0.hex)[0] }).sorted()
    var taken: [String: Int] = [:]
    var effectsTaken: [UInt8: Int] = [:]
    for _ in 0..<108_000 {
      let bytes = randomFields(using: &generator)
      let number = generator.pick(effects)
      try page.withBytes([number, UInt8(bytes.count)] + bytes) { span in
        let accepted = try again(span) {
          try $0.effect()
        } write: {
          $0.writeEffect($1)
        }
        if accepted { effectsTaken[number, default: 0] += 1 }
      }
      // An option's value follows a count, its number and its length.
      let option = UInt8(generator.below(15))
      try page.withBytes([1, option, UInt8(bytes.count)] + bytes) { span in
        let accepted = try again(span) {
          try $0.optionPatch()
        } write: {
          $0.writeOptionPatch($1)
        }
        if accepted { taken["option \(option)", default: 0] += 1 }
      }
      try page.withBytes(bytes) { span in
        if try again(span, { try $0.userSettings() }, write: { $0.writeUserSettings($1) }) {
          taken["settings", default: 0] += 1
        }
        if try again(span, { try $0.channelTypeRecord() }, write: { $0.writeChannelTypeRecord($1) }) {
          taken["type", default: 0] += 1
        }
        if try again(span, { try $0.ticketPlace() }, write: { $0.writeTicketPlace($1) }) {
          taken["place", default: 0] += 1
        }
        if (try? DeliveryReply(span)) != nil { taken["delivery", default: 0] += 1 }
        if try again(span, { try $0.sessionRecord() }, write: { $0.writeSessionRecord($1) }) {
          taken["session", default: 0] += 1
        }
        let type = generator.pick(FrameType.allCases)
        let flags = FrameHeader.Flags(rawValue: UInt8(generator.below(8)))
        if (try? parse(type, flags, span)) != nil { taken["\(type)", default: 0] += 1 }
      }
    }
    // A reader that accepted nothing was tested for refusals only.
    for name in ["settings", "type", "place", "delivery", "session"] + (1...13).map({ "option \($0)" }) {
      #expect(taken[name, default: 0] > 0, "seed \(seed): \(name)")
    }
    #expect(taken["option 0"] == nil && taken["option 14"] == nil)
    for type in ["acknowledge reply", "settle reply", "deleteMessage reply", "snapshotBegin reply", "rebuildIndex"] {
      #expect(taken[type] != nil, "\(type)")
    }
    let all = Self.effectsTaken.withLock { all in
      all.done += 1
      all.counts.merge(effectsTaken) { $0 + $1 }
      return all
    }
    // Random bytes seldom form the longer effects, and one seed may have none of them.
    guard all.done == Self.seeds.count, all.done >= 8 else { return }
    for effect in effects { #expect(all.counts[effect, default: 0] > 0, "effect \(effect)") }
  }

  /// Return false for a refusal. An accepted value must come back equal from the bytes it is written as.
  private func again<Value: Equatable>(
    _ bytes: RawSpan,
    _ read: (inout FieldReader) throws -> Value,
    write: (inout ByteBuffer, Value) -> Void
  ) throws -> Bool {
    var reader = FieldReader(bytes)
    guard let value = try? read(&reader) else { return false }
    var buffer = ByteBuffer()
    write(&buffer, value)
    var second = FieldReader(buffer.readableBytesSpan)
    let again = try read(&second)
    try second.end()
    #expect(again == value)
    return true
  }

  /// Up to 40 bytes, most of them small, as in real fields.
  private func randomFields(using generator: inout SplitMix64) -> [UInt8] {
    (0..<generator.below(41)).map { _ in
      switch generator.below(8) {
      case 0: UInt8(generator.below(256))
      case 1: UInt8(0x61 + generator.below(26))
      default: UInt8(generator.below(5))
      }
    }
  }

  private func mutated(
    _ bytes: [UInt8],
    _ corpus: [[UInt8]],
    using generator: inout SplitMix64
  ) -> [UInt8] {
    var bytes = bytes
    for _ in 0..<(1 + generator.below(3)) {
      let place = bytes.isEmpty ? 0 : generator.below(bytes.count)
      switch generator.below(7) {
      case 0 where !bytes.isEmpty: bytes[place] ^= 1 << UInt8(generator.below(8))
      case 1 where !bytes.isEmpty: bytes[place] = UInt8(generator.below(256))
      case 2 where !bytes.isEmpty:
        bytes[place] = generator.pick([0, 1, 0x7F, 0x80, 0xFF])
      case 3: bytes.insert(UInt8(generator.below(256)), at: place)
      case 4 where !bytes.isEmpty: bytes.remove(at: place)
      case 5: bytes.removeSubrange(place...)
      default:
        let other = generator.pick(corpus)
        bytes.insert(contentsOf: other.suffix(generator.below(21)), at: place)
      }
    }
    // Often the length is corrected, so that the mutation reaches the fields instead of failing at the header.
    if bytes.count >= 12, generator.oneIn(2) {
      for index in 0..<4 { bytes[index] = UInt8(truncatingIfNeeded: (bytes.count - 4) >> (24 - 8 * index)) }
    }
    return bytes.count <= 4096 ? bytes : Array(bytes.prefix(4096))
  }
}

/// A page of memory followed by an inaccessible page.
private final class GuardedPage {
  private let base: UnsafeMutableRawPointer
  private let pageBytes = Int(sysconf(Int32(_SC_PAGESIZE)))

  init() {
    let memory = mmap(nil, 2 * pageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    precondition(memory != MAP_FAILED && memory != nil, "no memory for the test")
    base = memory!
    precondition(mprotect(base + pageBytes, pageBytes, PROT_NONE) == 0)
  }

  deinit { munmap(base, 2 * pageBytes) }

  /// - Parameter bytes: at most one page.
  func withBytes(_ bytes: [UInt8], _ body: (RawSpan) throws -> Void) rethrows {
    let start = base + pageBytes - bytes.count
    bytes.withUnsafeBytes {
      if let source = $0.baseAddress { start.copyMemory(from: source, byteCount: $0.count) }
    }
    try body(UnsafeRawBufferPointer(start: start, count: bytes.count).bytes)
  }
}
