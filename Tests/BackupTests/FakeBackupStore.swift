import Dispatch
import Foundation
import Glibc
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import Synchronization
import Testing

@testable import Backup

/// A fake store that completes the handshake and serves a backup of a stopped store's directory.
final class FakeBackupStore: Sendable {
  /// Deviation from a store whose connection holds.
  enum Fault: Hashable, Sendable {
    /// Each reply is written in pieces.
    case dripFed
    /// The digest with the last chunk of this file is wrong.
    case wrongDigest(String)
    /// The last chunk of this file lacks a byte; its digest is right.
    case shortChunk(String)
    /// The connection is closed at the read of the last chunk of this file.
    case closedAtRead(String)
    /// The connection is closed at *backup_end*.
    case closedAtEnd
  }

  /// One file of the checkpoint.
  struct File: Sendable {
    var name: String
    var bytes: [UInt8]
  }

  /// The checkpoint's time.
  static let time = Timestamp(milliseconds: 1_763_874_818_000)
  /// The longest wait for the end of a connection. Only a failing test waits that long.
  private static let closeTimeout = DispatchTimeInterval.seconds(120)

  /// Its own: ``reset()`` blocks an event loop of the client.
  private let group: MultiThreadedEventLoopGroup
  private let listener: any Channel
  private let accepted: Accepted
  /// The checkpoint's files, in order of their names.
  let files: [File]

  private init(_ group: MultiThreadedEventLoopGroup, _ listener: any Channel, _ accepted: Accepted, _ files: [File]) {
    self.group = group
    self.listener = listener
    self.accepted = accepted
    self.files = files
  }

  var endpoint: Endpoint { Endpoint(host: "127.0.0.1", port: listener.localAddress!.port!) }

  /// The fault of connections that are accepted from now on; nil: none.
  var fault: Fault? {
    get { accepted.fault.withLock { $0 } }
    set { accepted.fault.withLock { $0 = newValue } }
  }

  /// Start a store. Without a directory it serves no backup.
  static func start(serving directory: StoreDirectory? = nil) async throws -> FakeBackupStore {
    let files = try directory.map(Self.files) ?? []
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let accepted = Accepted()
    let listener = try await ServerBootstrap(group: group)
      .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
      .childChannelInitializer { channel in
        accepted.channel.withLock { $0 = channel }
        let fault = accepted.fault.withLock { $0 }
        return channel.eventLoop.makeCompletedFuture {
          if fault == .dripFed { try channel.pipeline.syncOperations.addHandler(DripFeed()) }
          let terms = StoreSideHandler.Terms(shardCount: 2, window: 16, store: StoreDirectory.identity)
          let handler = StoreSideHandler(terms, Connection(files, fault)) { Issue.record($0) }
          try channel.pipeline.syncOperations.addHandler(handler)
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    return FakeBackupStore(group, listener, accepted, files)
  }

  /// Return the files that a checkpoint of this directory has.
  private static func files(of directory: StoreDirectory) throws -> [File] {
    try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
      .filter { $0 != "LOCK" && !$0.hasPrefix("LOG") }
      .map { name in
        let path = URL(fileURLWithPath: directory.path + "/" + name)
        return File(name: name, bytes: Array(try Data(contentsOf: path)))
      }
  }

  /// Reset the connection; return when it is closed.
  func reset() {
    guard let channel = accepted.channel.withLock({ $0 }), let options = channel as? any SocketOptionProvider else {
      Issue.record("there is no connection to reset")
      return
    }
    let closed = DispatchSemaphore(value: 0)
    channel.closeFuture.whenComplete { _ in closed.signal() }
    // With a linger time of 0, closing sends RST instead of FIN.
    options.setSoLinger(linger(l_onoff: 1, l_linger: 0)).whenComplete { _ in channel.close(promise: nil) }
    if closed.wait(timeout: .now() + Self.closeTimeout) == .timedOut {
      Issue.record("timed out waiting for the connection to close")
    }
  }

  func stop() async throws {
    try await listener.close()
    try await group.shutdownGracefully()
  }

  /// State that the store shares with its listener.
  private final class Accepted: Sendable {
    /// The accepted connection.
    let channel = Mutex<(any Channel)?>(nil)
    let fault = Mutex<Fault?>(nil)
  }

  /// Answers the requests of a backup.
  private final class Connection: StoreSideConnection {
    private let files: [File]
    private let fault: Fault?

    init(_ files: [File], _ fault: Fault?) {
      self.files = files
      self.fault = fault
    }

    func received(_ header: FrameHeader, _ payload: ByteBuffer, _ output: inout ByteBuffer) throws -> Bool {
      if header.kind == .backupEnd, fault == .closedAtEnd { return false }
      guard let reply = try reply(to: header.kind, payload) else { return false }
      output.writeFrame(header.reply) {
        $0.writeImmutableBuffer(reply)
      }
      return true
    }

    /// Return the payload of a reply; nil: the connection is closed instead.
    private func reply(to kind: FrameKind, _ payload: ByteBuffer) throws -> ByteBuffer? {
      var reply = ByteBuffer()
      switch kind {
      case .backupBegin:
        BackupContents(
          store: StoreDirectory.identity,
          time: FakeBackupStore.time,
          indexes: [LogIndex(2), LogIndex(0)],
          files: files.map { BackupContents.File(name: $0.name, size: UInt64($0.bytes.count)) }
        ).write(into: &reply)
      case .backupRead, .backupDigest:
        let part = try BackupPart(payload.readableBytesSpan)
        let file = files[Int(part.file)]
        let (start, end) = (Int(part.offset), Int(part.offset + part.count))
        var bytes = file.bytes[start..<end]
        let fault = end == file.bytes.count && kind == .backupRead ? self.fault : nil
        if fault == .closedAtRead(file.name) { return nil }
        if fault == .shortChunk(file.name) { bytes.removeLast() }
        var digest = bytes.withUnsafeBytes { LocalFiles.digest($0) }
        if fault == .wrongDigest(file.name) { digest[31] ^= 1 }
        reply.writeBytes(digest)
        if kind == .backupRead { reply.writeBytes(bytes) }
      case .backupEnd: break
      default: Issue.record("unexpected \(kind) frame")
      }
      return reply
    }
  }

  /// Writes in pieces. Smaller ones come first, so that a frame's header is split too.
  private final class DripFeed: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Length of the longest piece.
    private static let pieceBytes = 1_021

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
      var rest = unwrapOutboundIn(data)
      var length = 1
      while let piece = rest.readSlice(length: min(length, rest.readableBytes)), piece.readableBytes > 0 {
        context.writeAndFlush(wrapOutboundOut(piece), promise: nil)
        length = min(length + 1, Self.pieceBytes)
      }
      promise?.succeed()
    }
  }
}
