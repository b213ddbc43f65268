internal import Glibc
internal import NIOCore
internal import ReceiptWire

/// Incremental comparison of the responses of a stream with the expected ones.
protocol PushResults {
  /// Correct answers so far.
  var count: Int { get }
  var input: PartialBytes { get set }
  /// Compare the whole answers in `bytes`; return how many bytes they have.
  mutating func parse(_ bytes: UnsafeRawBufferPointer) throws(LoadError) -> Int
  /// Handle the end of the stream.
  func end() throws(LoadError)
}

extension PushResults {
  mutating func read(_ bytes: UnsafeRawBufferPointer) throws(LoadError) {
    // Moved out while it parses, because the parser changes this value.
    var input = input
    self.input = PartialBytes()
    try input.feed(bytes) { bytes throws(LoadError) in try parse(bytes) }
    self.input = input
  }
}

/// Texts in one memory block.
private struct Pieces {
  private var bytes: [UInt8] = []
  private var offsets = [0]

  init(_ texts: some Sequence<String>) {
    for text in texts {
      bytes += Array(text.utf8)
      offsets.append(bytes.count)
    }
  }

  @inline(__always)
  func count(_ index: Int) -> Int { offsets[index + 1] - offsets[index] }

  @inline(__always)
  func isEqual(_ index: Int, to other: UnsafeRawPointer) -> Bool {
    bytes.withUnsafeBytes {
      memcmp($0.baseAddress.unsafelyUnwrapped + offsets[index], other, count(index)) == 0
    }
  }
}

/// NDJSON responses: each line has to equal the expected response to the push ack at its position.
struct PushLines: PushResults {
  private let walk: PushWalk
  private let channels: Pieces
  private let messages: Pieces
  private let users: Pieces
  var input = PartialBytes()
  private(set) var count = 0
  private var block = 0
  private var position = 0

  init(_ walk: PushWalk) {
    self.walk = walk
    channels = Pieces((0..<walk.channels).map { #"{"ok":true,"cid":"\#(PushWalk.cid($0))","message_id":""# })
    messages = Pieces((1...walk.messages).map { #"\#(PushWalk.message($0))","user_id":""# })
    users = Pieces((0..<walk.pairs).map { "\(PushWalk.user($0))\"}\n" })
  }

  func end() throws(LoadError) {
    guard input.count == 0 else { throw LoadError("the answers end within a line, or with an unexpected one") }
    guard count == walk.count else { throw LoadError("\(count) answers to \(walk.count) acknowledgements") }
  }

  mutating func parse(_ bytes: UnsafeRawBufferPointer) throws(LoadError) -> Int {
    guard let base = bytes.baseAddress else { return 0 }
    var offset = 0
    while offset < bytes.count {
      guard count < walk.count else { throw LoadError("more answers than acknowledgements: \(line(bytes, offset))") }
      let channel = walk.channel(at: position)
      let message = walk.message(ofBlock: block) - 1
      let user = walk.user(at: position)
      let lengths = (channels.count(channel), messages.count(message), users.count(user))
      let length = lengths.0 + lengths.1 + lengths.2
      guard bytes.count - offset >= length else { break }
      let at = base + offset
      guard channels.isEqual(channel, to: at), messages.isEqual(message, to: at + lengths.0),
        users.isEqual(user, to: at + lengths.0 + lengths.1)
      else { throw LoadError("answer \(count + 1) is \(line(bytes, offset))") }
      offset += length
      count += 1
      position += 1
      if position == walk.pairs { (block, position) = (block + 1, 0) }
    }
    return offset
  }

  private func line(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> String {
    String(decoding: bytes[offset...].prefix(300).prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
  }
}

/// Replies in frames: one for each push ack, in any order, with the expected number of moved watermarks.
struct PushReplies: PushResults {
  private let walk: PushWalk
  /// The kind of the requests.
  private let kind: FrameKind
  var input = PartialBytes()
  private let decoder = FrameDecoder()
  private(set) var count = 0
  private var moves = 0
  /// Missing replies by correlation, which stands for a message and a member.
  private var missing: [UInt8]

  init(_ walk: PushWalk, _ mode: PushMode) {
    self.walk = walk
    kind = mode.usesTickets ? .presentTicket : .acknowledgePush
    missing = (1...walk.messages).flatMap {
      Array(repeating: UInt8(walk.sends(ofMessage: $0)), count: walk.pairs)
    }
  }

  func end() throws(LoadError) {
    guard input.count == 0 else { throw LoadError("the replies end within a frame") }
    guard count == walk.count else { throw LoadError("\(count) replies to \(walk.count) acknowledgements") }
    guard moves == walk.moves else { throw LoadError("\(moves) watermarks were moved, expected \(walk.moves)") }
  }

  mutating func parse(_ bytes: UnsafeRawBufferPointer) throws(LoadError) -> Int {
    let bytes = RawSpan(_unsafeBytes: bytes)
    var offset = 0
    while case .frame(let header, let payloadCount) = try next(bytes, at: offset) {
      let start = offset + FrameHeader.byteCount
      let payload = bytes.extracting(start..<start + payloadCount)
      offset = start + payloadCount
      guard header.isReply, header.kind == kind else { throw Self.refusal(header, payload) }
      let position = Int(header.correlation) - 1
      guard missing.indices.contains(position), missing[position] > 0 else {
        throw LoadError("a reply to \(header.correlation), which is not expected")
      }
      missing[position] -= 1
      moves += try Self.moved(payload)
      count += 1
    }
    return offset
  }

  private func next(_ bytes: RawSpan, at offset: Int) throws(LoadError) -> FrameDecoder.Next {
    do throws(WireError) {
      return try decoder.next(bytes, at: offset)
    } catch {
      throw LoadError("invalid frames: \(error)")
    }
  }

  /// Return whether a delivery without names moved the watermark, as 1 or 0.
  private static func moved(_ payload: RawSpan) throws(LoadError) -> Int {
    do throws(WireError) {
      let delivery = try DeliveryReply(payload)
      guard delivery.cid.isEmpty, delivery.user.isEmpty, delivery.message.isEmpty else { throw .badValue(.text) }
      guard delivery.uncounted == nil, delivery.sent <= delivery.delivered else { throw .badValue(.status) }
      return delivery.moved ? 1 : 0
    } catch {
      throw LoadError("a reply is not a delivery without names: \(error)")
    }
  }

  private static func refusal(_ header: FrameHeader, _ payload: RawSpan) -> LoadError {
    guard header.kind == .error, let error = try? ErrorFrame(payload) else {
      return LoadError("an unexpected kind of reply: \(header.kind)")
    }
    let code = error.code.map { "\($0)" } ?? "\(error.rawCode)"
    return LoadError("acknowledgement \(header.correlation) was refused: \(code) \(error.detail)")
  }
}
