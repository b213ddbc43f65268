package import NIOCore

/// Last handler of a client's pipeline: reports an error, mostly one of TLS, and closes the connection.
package final class ConnectionErrorHandler: ChannelInboundHandler {
  package typealias InboundIn = Never

  private let report: (any Error) -> Void

  package init(_ report: @escaping (any Error) -> Void) { self.report = report }

  package func errorCaught(context: ChannelHandlerContext, error: any Error) {
    report(error)
    context.close(promise: nil)
  }
}
