internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Request body of a run, made in advance: pieces of up to a thousand push acks.
struct PushBodies: Sendable {
  /// Push acks of one piece, and tickets of one request.
  static let pieceCount = 1_000

  let walk: PushWalk
  /// Pieces by message; repeated pieces are stored once.
  private var pieces: [ByteBuffer]
  private let piecesPerBlock: Int
  private var block = 0
  private var piece = 0

  /// - Parameter pieces: all of the first message, then all of the second, and so on.
  init(_ walk: PushWalk, pieces: [ByteBuffer]) {
    self.walk = walk
    self.pieces = pieces
    piecesPerBlock = Self.piecesPerBlock(walk)
    precondition(pieces.count == piecesPerBlock * walk.messages)
  }

  static func piecesPerBlock(_ walk: PushWalk) -> Int { (walk.pairs + pieceCount - 1) / pieceCount }

  /// Return the positions in a block that a piece covers.
  static func positions(_ walk: PushWalk, ofPiece piece: Int) -> Range<Int> {
    piece * pieceCount..<min((piece + 1) * pieceCount, walk.pairs)
  }

  /// Return the next piece of the body; nil at its end.
  mutating func next() -> ByteBuffer? {
    guard block < walk.blocks else { return nil }
    defer {
      piece += 1
      if piece == piecesPerBlock { (block, piece) = (block + 1, 0) }
    }
    return pieces[(walk.message(ofBlock: block) - 1) * piecesPerBlock + piece]
  }

  /// Size of the whole body.
  var byteCount: Int {
    (0..<walk.blocks).reduce(0) { sum, block in
      let first = (walk.message(ofBlock: block) - 1) * piecesPerBlock
      return sum + pieces[first..<first + piecesPerBlock].reduce(0) { $0 + $1.readableBytes }
    }
  }

  /// Encode one piece.
  ///
  /// - Parameter tickets: tickets of its push acks; empty for push acks by name.
  static func piece(_ piece: Int, ofMessage message: Int, _ walk: PushWalk, _ mode: PushMode, tickets: [String])
    -> ByteBuffer
  {
    var buffer = ByteBuffer()
    for (index, position) in positions(walk, ofPiece: piece).enumerated() {
      if mode.usesFrames {
        let correlation = UInt32((message - 1) * walk.pairs + position + 1)
        buffer.writeFrame(
          FrameHeader(mode.usesTickets ? .presentTicket : .acknowledgePush, correlation: correlation)
        ) { buffer in
          if mode.usesTickets {
            writeTicket(tickets[index], into: &buffer)
          } else {
            writeNames(message, position, walk, into: &buffer)
          }
        }
      } else if mode.usesTickets {
        buffer.writeString("{\"ticket\":\"\(tickets[index])\"}\n")
      } else {
        let (cid, user) = (PushWalk.cid(walk.channel(at: position)), PushWalk.user(walk.user(at: position)))
        buffer.writeString(
          "{\"cid\":\"\(cid)\",\"message_id\":\"\(PushWalk.message(message))\",\"user_id\":\"\(user)\"}\n"
        )
      }
    }
    return buffer
  }

  /// Command counter: the gateway replaces it.
  private static let counter: UInt64 = 1

  private static func writeNames(_ message: Int, _ position: Int, _ walk: PushWalk, into buffer: inout ByteBuffer) {
    buffer.writeField(PushWalk.cid(walk.channel(at: position)))
    buffer.writeVarint(counter)
    buffer.writeAcknowledgePush(
      user: Array(PushWalk.user(walk.user(at: position)).utf8).span.bytes,
      message: Array(PushWalk.message(message).utf8).span.bytes,
      acked: .none,
      wantsNames: false
    )
  }

  private static func writeTicket(_ ticket: String, into buffer: inout ByteBuffer) {
    buffer.writeVarint(counter)
    buffer.writePresentTicket(Array(ticket.utf8).span.bytes, acked: .none, wantsNames: false)
  }
}
