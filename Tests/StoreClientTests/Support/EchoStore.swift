import Crypto
import NIOCore
import ReceiptModel
import ReceiptWire

/// The store's side of Proto/frames.md as visible to a client, with switches for faults. It applies a command once for
/// each (session, counter). A reply echoes its request's fields, which identifies the request to the test.
final class EchoStore {
  var secrets: [[UInt8]] = []
  /// A wrong proof for the challenge.
  var proofOverride: [UInt8]?
  var version: UInt32 = 1
  var window: UInt32 = 1024
  var shardCount: UInt32 = 16
  var frameLengthMax: UInt32 = 1 << 20
  var identity = SessionID(high: 1, low: 1)
  /// Refuses hellos with an old session as `session_expired`.
  var expiresOldSessions = false
  /// Requests stay in `waiting` until the test answers them.
  var holdsReplies = false
  /// A node that sends no map of its shards.
  var hasNoMap = false
  /// Sends nothing after the handshake.
  var isSilent = false

  struct Request: Equatable {
    var connection: Int
    var kind: FrameKind
    var isResend: Bool
    var shard: ShardID
    var correlation: UInt32
    var session: SessionID
    var name: String
    /// nil for a query.
    var counter: UInt64?
    /// The fields after cid and counter.
    var rest: [UInt8]
    /// The thread's parent id, given by the flag at the end of the fields, and removed from `rest`.
    var thread: String?
    var issued: UInt32?
  }

  private(set) var hellos: [Hello] = []
  /// All complete requests, in order of arrival.
  private(set) var requests: [Request] = []
  /// The nodes of a cluster share it, as they share the records of sessions.
  var commands = AppliedCommands()
  var applied: [SessionID: [UInt64: Request]] { commands.applied }
  /// The shards that this node of a cluster owns; nil: the store is no cluster.
  private(set) var owned: [ShardMap.OwnedRange]?
  /// The number of this node, and the others that its maps name.
  var number: UInt16 = 1
  private(set) var peers: [ShardMap.Peer] = []
  var waiting: [Request] = []
  private(set) var pings = 0
  private(set) var connections: [FakeConnection] = []

  func open() -> FakeConnection {
    let connection = FakeConnection(store: self, number: connections.count)
    connections.append(connection)
    return connection
  }

  fileprivate func proof(_ side: String, _ hello: Hello, _ nonce: Nonce, _ secret: [UInt8]) -> [UInt8] {
    var bytes = Array(side.utf8) + hello.nonce.bytes + nonce.bytes
    for half in [hello.session.high, hello.session.low] {
      bytes += (0..<8).map { UInt8(truncatingIfNeeded: half >> (56 - 8 * UInt64($0))) }
    }
    return Array(HMAC<SHA256>.authenticationCode(for: bytes, using: SymmetricKey(data: secret)))
  }

  fileprivate func greet(_ hello: Hello) { hellos.append(hello) }
  fileprivate func countPing() { pings += 1 }

  fileprivate func take(_ request: Request) {
    requests.append(request)
    commands.take(request)
  }

  /// Own these shards from now on. `isAnnounced`: open connections get the map.
  func own(_ owned: [ShardMap.OwnedRange], isAnnounced: Bool = true) {
    self.owned = owned
    guard isAnnounced else { return }
    for connection in connections { connection.sendMap() }
  }

  /// Name these nodes from now on; open connections get the map if that is a change.
  func name(_ peers: [ShardMap.Peer]) {
    guard self.peers != peers else { return }
    self.peers = peers
    for connection in connections { connection.sendMap() }
  }

  /// Open connections of clients, in the order of their handshakes.
  var openConnections: [FakeConnection] { connections.filter { $0.session != nil } }

  /// End the other connections of a session.
  fileprivate func supersede(_ session: SessionID, by newest: FakeConnection) {
    for connection in openConnections where connection !== newest && connection.session == session {
      connection.supersede()
    }
  }

  fileprivate func owns(_ shard: ShardID) -> Bool {
    owned?.contains { $0.shards.contains(Int(shard.rawValue)) } ?? true
  }
}

/// The commands that a store has applied, each once for its session and counter.
final class AppliedCommands {
  private(set) var applied: [SessionID: [UInt64: EchoStore.Request]] = [:]
  /// Commands that came behind a later one of their shard: a store takes them for applied, so that they are lost.
  private(set) var lost: [EchoStore.Request] = []
  private var highest: [ShardID: (session: SessionID, counter: UInt64)] = [:]

  fileprivate func take(_ request: EchoStore.Request) {
    guard let counter = request.counter, applied[request.session]?[counter] == nil else { return }
    if let last = highest[request.shard], last.session == request.session, counter <= last.counter {
      lost.append(request)
      return
    }
    highest[request.shard] = (request.session, counter)
    applied[request.session, default: [:]][counter] = request
  }
}

/// One connection to the fake store: `receive` takes its input, `output` has its output.
final class FakeConnection {
  private enum State {
    case awaitingHello
    case awaitingProof(Hello, Nonce)
    case open(Hello)
    case closed
  }

  let store: EchoStore
  let number: Int
  private var state = State.awaitingHello
  private var input = ByteBuffer()
  var output = ByteBuffer()
  private(set) var isClosed = false
  /// The received frame headers, for tests of frames other than requests.
  private(set) var frames: [FrameHeader] = []
  /// The shards of the last map.
  private var named: Set<UInt16> = []
  /// Shards whose loss the client may not know yet.
  private var withheld: Set<UInt16> = []
  private var lastPing: UInt64 = 0

  init(store: EchoStore, number: Int) {
    self.store = store
    self.number = number
  }

  /// Close the connection on the store's side.
  func close() {
    isClosed = true
    state = .closed
  }

  /// The client's session, while the connection is open.
  var session: SessionID? { if case .open(let hello) = state { hello.session } else { nil } }

  fileprivate func supersede() { fail(.superseded) }

  /// Send events of a shard.
  func sendEvents(of shard: UInt16) {
    output.writeFrame(FrameHeader(.events, shard: ShardID(shard))) { $0.writeInteger(UInt8(0)) }
  }

  /// Send the shards that the node owns, once the connection is open. Requests for shards that it has lost since the
  /// last map are dropped, and those that arrive before the pong.
  fileprivate func sendMap() {
    guard case .open = state, !store.hasNoMap, let owned = store.owned else { return }
    let lost = named.filter { !store.owns(ShardID($0)) }
    withheld.formUnion(lost)
    store.waiting.removeAll { $0.connection == number && lost.contains($0.shard.rawValue) }
    let map = owned.flatMap { range in
      range.shards.map { ShardMap.OwnedRange(first: UInt16($0), count: 1, epoch: range.epoch) }
    }.filter { !withheld.contains($0.first) }
    named = Set(map.map(\.first))
    ShardMap(owned: map, node: store.number, peers: store.peers).write(into: &output)
    guard !lost.isEmpty else { return }
    lastPing += 1
    output.writeFrame(FrameHeader(.ping)) { $0.writeInteger(lastPing) }
  }

  private func pongReceived(_ payload: ByteBuffer) {
    guard payload.getInteger(at: payload.readerIndex) == lastPing, !withheld.isEmpty else { return }
    withheld = []
    sendMap()
  }

  func receive(_ bytes: ByteBuffer) {
    input.writeImmutableBuffer(bytes)
    while !isClosed {
      let next: FrameDecoder.Next
      do { next = try FrameDecoder().next(input.readableBytesSpan, at: 0) } catch {
        return fail(.malformedFrame, "\(error)")
      }
      guard case .frame(let header, let payloadCount) = next else { return }
      input.moveReaderIndex(forwardBy: FrameHeader.byteCount)
      let payload = input.readSlice(length: payloadCount)!
      frames.append(header)
      do { try frame(header, payload) } catch { return fail(.malformedFrame, "\(error)") }
    }
  }

  private func fail(_ code: ErrorCode, _ detail: String = "") {
    output.writeError(code, detail: detail)
    close()
  }

  private func frame(_ header: FrameHeader, _ payload: ByteBuffer) throws {
    switch state {
    case .awaitingHello:
      guard header.kind == .hello else { return fail(.handshakeRequired) }
      let hello = try Hello(payload.readableBytesSpan)
      store.greet(hello)
      if store.expiresOldSessions, hello.sessionAgeMilliseconds != nil { return fail(.sessionExpired) }
      let nonce = Nonce.random()
      let proof = store.secrets.first.map { store.proof("tidemark store 1", hello, nonce, $0) } ?? []
      var challenge = Challenge(
        nonce: nonce,
        proof: store.proofOverride ?? proof,
        window: store.window,
        shardCount: store.shardCount,
        store: store.identity
      )
      challenge.version = store.version
      challenge.frameLengthMax = store.frameLengthMax
      challenge.write(into: &output)
      state = .awaitingProof(hello, nonce)
    case .awaitingProof(let hello, let nonce):
      guard header.kind == .proof else { return fail(.handshakeRequired) }
      let theirs = try Proof(payload.readableBytesSpan).bytes
      let right = store.secrets.map { store.proof("tidemark gateway 1", hello, nonce, $0) }
      guard right.isEmpty || right.contains(theirs) else { return fail(.authenticationFailed) }
      Ready(
        isResumed: store.applied[hello.session] != nil,
        sessionLifetimeMilliseconds: 600_000,
        shards: store.owned == nil ? [Ready.ShardRange(first: 0, count: store.shardCount, address: "")] : []
      ).write(into: &output)
      state = .open(hello)
      store.supersede(hello.session, by: self)
      sendMap()
    case .open(let hello):
      if store.isSilent { return }
      try request(header, payload, hello)
    case .closed:
      break
    }
  }

  private func request(_ header: FrameHeader, _ payload: ByteBuffer, _ hello: Hello) throws {
    if header.kind == .ping {
      store.countPing()
      output.writeFrame(FrameHeader(.pong, correlation: header.correlation)) {
        $0.writeImmutableBuffer(payload)
      }
      return
    }
    if header.kind == .pong { return pongReceived(payload) }
    guard header.isRequest else { return fail(.unknownKind) }
    if withheld.contains(header.shard.rawValue) { return }
    guard store.owns(header.shard) else {
      return output.writeError(.notOwner, shard: header.shard, correlation: header.correlation, detail: "")
    }
    var reader = FieldReader(payload.readableBytesSpan)
    let name = header.kind == .listChannelTypes ? "" : try reader.text()
    let counter = header.kind.isCommand ? try reader.varint() : nil
    let issuedCount = header.flags.contains(.issued) ? FrameHeader.issuedByteCount : 0
    guard reader.remaining >= issuedCount else { return fail(.malformedFrame) }
    var rest = try reader.raw(reader.remaining - issuedCount).withUnsafeBytes { Array($0) }
    var thread: String?
    if header.flags.contains(.thread) {
      // The tests' fields are the tag and zeros: after the last zero come the length and the thread's name.
      let name = rest.suffix(while: { $0 != 0 })
      guard let length = name.first, Int(length) == name.count - 1 else { return fail(.malformedFrame) }
      thread = String(decoding: name.dropFirst(), as: UTF8.self)
      rest.removeLast(name.count)
    }
    let issued = try reader.raw(issuedCount).withUnsafeBytes { Array($0) }
    let request = EchoStore.Request(
      connection: number,
      kind: header.kind,
      isResend: header.flags.contains(.resend),
      shard: header.shard,
      correlation: header.correlation,
      session: hello.session,
      name: name,
      counter: counter,
      rest: rest,
      thread: thread,
      issued: issued.isEmpty ? nil : issued.reduce(0) { $0 << 8 | UInt32($1) }
    )
    store.take(request)
    if store.holdsReplies { store.waiting.append(request) } else { reply(request) }
  }

  func reply(_ request: EchoStore.Request) {
    let header = FrameHeader(replyTo: request.kind, shard: request.shard, correlation: request.correlation)
    output.writeFrame(header) { $0.writeBytes(request.rest) }
  }
}

extension [UInt8] {
  fileprivate func suffix(while isIncluded: (UInt8) -> Bool) -> ArraySlice<UInt8> {
    self[(lastIndex { !isIncluded($0) } ?? -1) + 1..<count]
  }
}
