internal import Glibc
internal import NIOCore
internal import ReceiptWire

/// Compares the answers of a stream with what they have to be, as they come, in whatever pieces.
protocol PushAnswers {
  /// Answers so far, all as they have to be.
  var count: Int { get }
  mutating func read(_ bytes: UnsafeRawBufferPointer) throws(LoadError)
  /// The stream has ended.
  func end() throws(LoadError)
}

/// Puts together what a read has cut.
private struct CutBytes {
  private var rest: [UInt8] = []

  /// What has not been parsed.
  var count: Int { rest.count }

  /// - Parameter parse: given all there is, returns how many bytes of it it was done with.
  mutating func feed(
    _ bytes: UnsafeRawBufferPointer,
    _ parse: (UnsafeRawBufferPointer) throws(LoadError) -> Int
  ) throws(LoadError) {
    guard !rest.isEmpty else {
      let taken = try parse(bytes)
      rest.append(contentsOf: bytes[taken...])
      return
    }
    rest.append(contentsOf: bytes)
    var failure: LoadError?
    let taken = rest.withUnsafeBytes { bytes in
      do throws(LoadError) {
        return try parse(bytes)
      } catch {
        failure = error
        return 0
      }
    }
    if let failure { throw failure }
    rest.removeFirst(taken)
  }
}

/// Texts in one piece of memory.
private struct Pieces {
  private var bytes: [UInt8] = []
  private var starts = [0]

  init(_ texts: some Sequence<String>) {
    for text in texts {
      bytes += Array(text.utf8)
      starts.append(bytes.count)
    }
  }

  @inline(__always)
  func count(_ index: Int) -> Int { starts[index + 1] - starts[index] }

  @inline(__always)
  func isEqual(_ index: Int, to other: UnsafeRawPointer) -> Bool {
    bytes.withUnsafeBytes {
      memcmp($0.baseAddress.unsafelyUnwrapped + starts[index], other, count(index)) == 0
    }
  }
}

/// NDJSON: each line has to be, byte by byte, the one that answers the acknowledgement of its place.
struct PushLines: PushAnswers {
  private let walk: PushWalk
  private let channels: Pieces
  private let messages: Pieces
  private let users: Pieces
  private var cut = CutBytes()
  private(set) var count = 0
  private var block = 0
  private var place = 0

  init(_ walk: PushWalk) {
    self.walk = walk
    channels = Pieces(
      (0..<walk.channels).map { #"{"ok":true,"cid":"\#(PushWalk.cid($0))","message_id":""# }
    )
    messages = Pieces((1...walk.messages).map { #"\#(PushWalk.message($0))","user_id":""# })
    users = Pieces((0..<walk.pairs).map { "\(PushWalk.user($0))\"}\n" })
  }

  mutating func read(_ bytes: UnsafeRawBufferPointer) throws(LoadError) {
    var cut = cut
    self.cut = CutBytes()
    try cut.feed(bytes) { bytes throws(LoadError) in try take(bytes) }
    self.cut = cut
  }

  func end() throws(LoadError) {
    guard cut.count == 0 else {
      throw LoadError("the answers end within a line, or with another than expected")
    }
    guard count == walk.count else { throw LoadError("\(count) answers to \(walk.count) acknowledgements") }
  }

  private mutating func take(_ bytes: UnsafeRawBufferPointer) throws(LoadError) -> Int {
    guard let base = bytes.baseAddress else { return 0 }
    var offset = 0
    while offset < bytes.count {
      guard count < walk.count else {
        throw LoadError("more answers than acknowledgements: \(line(bytes, offset))")
      }
      let channel = walk.channel(at: place)
      let message = walk.message(ofBlock: block) - 1
      let user = walk.user(at: place)
      let lengths = (channels.count(channel), messages.count(message), users.count(user))
      let length = lengths.0 + lengths.1 + lengths.2
      guard bytes.count - offset >= length else { break }
      let at = base + offset
      guard channels.isEqual(channel, to: at), messages.isEqual(message, to: at + lengths.0),
        users.isEqual(user, to: at + lengths.0 + lengths.1)
      else { throw LoadError("answer \(count + 1) is \(line(bytes, offset))") }
      offset += length
      count += 1
      place += 1
      if place == walk.pairs { (block, place) = (block + 1, 0) }
    }
    return offset
  }

  private func line(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> String {
    String(decoding: bytes[offset...].prefix(300).prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
  }
}

/// Frames: each acknowledgement has one reply, in any order; as many say that they moved a watermark as have to.
struct PushReplies: PushAnswers {
  private let walk: PushWalk
  private let kind: FrameKind
  private var cut = CutBytes()
  private let decoder = FrameDecoder()
  private(set) var count = 0
  private var moves = 0
  /// Replies that are still to come, by the correlation of a message and a member.
  private var missing: [UInt8]

  init(_ walk: PushWalk, _ way: PushWay) {
    self.walk = walk
    kind = way.usesTickets ? .presentTicketReply : .acknowledgePushReply
    missing = (1...walk.messages).flatMap {
      Array(repeating: UInt8(walk.sends(ofMessage: $0)), count: walk.pairs)
    }
  }

  mutating func read(_ bytes: UnsafeRawBufferPointer) throws(LoadError) {
    var cut = cut
    self.cut = CutBytes()
    try cut.feed(bytes) { bytes throws(LoadError) in try take(bytes) }
    self.cut = cut
  }

  func end() throws(LoadError) {
    guard cut.count == 0 else { throw LoadError("the replies end within a frame") }
    guard count == walk.count else { throw LoadError("\(count) replies to \(walk.count) acknowledgements") }
    guard moves == walk.moves else { throw LoadError("\(moves) watermarks were moved, not \(walk.moves)") }
  }

  private mutating func take(_ bytes: UnsafeRawBufferPointer) throws(LoadError) -> Int {
    let bytes = RawSpan(_unsafeBytes: bytes)
    var offset = 0
    while case .frame(let header, let payloadCount) = try next(bytes, at: offset) {
      let start = offset + FrameHeader.byteCount
      let payload = bytes.extracting(start..<start + payloadCount)
      offset = start + payloadCount
      guard header.kind == kind else { throw Self.refusal(header, payload) }
      let place = Int(header.correlation) - 1
      guard missing.indices.contains(place), missing[place] > 0 else {
        throw LoadError("a reply to \(header.correlation), which is not waited for")
      }
      missing[place] -= 1
      moves += try Self.moved(payload)
      count += 1
    }
    return offset
  }

  private func next(_ bytes: RawSpan, at offset: Int) throws(LoadError) -> FrameDecoder.Next {
    do throws(WireError) {
      return try decoder.next(bytes, at: offset)
    } catch {
      throw LoadError("the replies are no frames: \(error)")
    }
  }

  /// A delivery without names: moved, two times, three empty strings.
  private static func moved(_ payload: RawSpan) throws(LoadError) -> Int {
    do throws(WireError) {
      var reader = FieldReader(payload)
      let moved = try reader.byte()
      let (sent, delivered) = (try reader.time(), try reader.time())
      for _ in 0..<3 {
        guard try reader.byte() == 0 else { throw .badValue(.text) }
      }
      try reader.end()
      guard moved <= 1, sent <= delivered else { throw .badValue(.status) }
      return Int(moved)
    } catch {
      throw LoadError("a reply is no delivery without names: \(error)")
    }
  }

  private static func refusal(_ header: FrameHeader, _ payload: RawSpan) -> LoadError {
    guard header.kind == .error, let error = try? ErrorFrame(payload) else {
      return LoadError("a reply of another kind than asked for: \(header.kind)")
    }
    return LoadError(
      "acknowledgement \(header.correlation) was refused: \(error.code.map { "\($0)" } ?? "\(error.rawCode)") \(error.detail)"
    )
  }
}
