import NIOCore
import NIOPosix
import Testing

@testable import Operations

struct ErrorTextTests {
  /// The system's error text, without call names and numbers.
  @Test func socketErrorsHavePlainText() async throws {
    let group = MultiThreadedEventLoopGroup.singleton
    let listener = try await ServerBootstrap(group: group).bind(host: "127.0.0.1", port: 0).get()
    let port = try #require(listener.localAddress?.port)
    var errors: [String] = []
    do {
      try await ServerBootstrap(group: group).bind(host: "127.0.0.1", port: port).get().close()
    } catch {
      errors.append(ErrorText.of(error))
    }
    try await listener.close()
    do {
      try await ClientBootstrap(group: group).connect(host: "127.0.0.1", port: port).get().close()
    } catch {
      errors.append(ErrorText.of(error))
    }
    #expect(errors == ["Address already in use", "Connection refused"])
  }

  @Test func resolverTimeoutAndSettingsErrorsHavePlainText() {
    // An invalid name, so that no resolver is queried.
    let unknown = #expect(throws: (any Error).self) {
      _ = try SocketAddress.makeAddressResolvingHost("no..name", port: 1)
    }
    #expect(unknown.map { ErrorText.of($0) } == #"cannot resolve "no..name""#)
    #expect(ErrorText.of(ChannelError.connectTimeout(.seconds(2))) == "timed out after 2 s")
    let ours = SettingsError("listen", "is wrong")
    #expect(ErrorText.of(ours) == "\(ours)")
  }
}
