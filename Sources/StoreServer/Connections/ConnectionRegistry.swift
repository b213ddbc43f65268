internal import NIOConcurrencyHelpers
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The current connection of each session: a session's new connection ends its older one (Proto/frames.md, "Sessions
/// and resending").
final class ConnectionRegistry: Sendable {
  private struct Entry {
    var channel: any Channel
    var serial: UInt64
  }

  private struct State {
    var entries: [SessionID: Entry] = [:]
    var nextSerial: UInt64 = 1
  }

  private let state = NIOLockedValueBox(State())

  /// Register a session's connection; an older one gets an error frame and is closed.
  ///
  /// - Returns: a serial number that identifies this entry for ``remove(_:serial:)``.
  func insert(_ session: SessionID, _ channel: any Channel) -> UInt64 {
    let (serial, older) = state.withLockedValue { state in
      let serial = state.nextSerial
      state.nextSerial += 1
      let older = state.entries.updateValue(Entry(channel: channel, serial: serial), forKey: session)
      return (serial, older?.channel)
    }
    if let older {
      var buffer = ByteBuffer()
      buffer.writeError(.superseded, detail: "the session opened another connection")
      // Do not wait for the write: a dead peer accepts no bytes, and the connection would stay open.
      older.writeAndFlush(buffer, promise: nil)
      older.close(promise: nil)
    }
    return serial
  }

  func remove(_ session: SessionID, serial: UInt64) {
    state.withLockedValue { state in
      if state.entries[session]?.serial == serial { state.entries[session] = nil }
    }
  }

  /// Connections that are open for requests.
  var channels: [any Channel] { state.withLockedValue { $0.entries.values.map(\.channel) } }

  var count: Int { state.withLockedValue { $0.entries.count } }
}
