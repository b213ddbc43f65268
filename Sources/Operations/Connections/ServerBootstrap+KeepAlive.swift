internal import NIOCore
package import NIOPosix

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

extension ServerBootstrap {
  /// Detect a peer whose machine is gone within two minutes, also where its connection is idle: the first probe after a
  /// minute, then one every 15 s, and four without an answer end the connection.
  package func childKeepAlive() -> Self {
    childChannelOption(.socketOption(.so_keepalive), value: 1)
      .childChannelOption(.tcpOption(.init(rawValue: TCP_KEEPIDLE)), value: 60)
      .childChannelOption(.tcpOption(.init(rawValue: TCP_KEEPINTVL)), value: 15)
      .childChannelOption(.tcpOption(.init(rawValue: TCP_KEEPCNT)), value: 4)
  }
}
