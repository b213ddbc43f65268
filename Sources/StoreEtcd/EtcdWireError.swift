package import ReceiptWire

/// The reason why bytes from an etcd server do not parse. Each of them fails the call, or ends the watch.
package enum EtcdWireError: Error, Hashable, Sendable {
  // MARK: Protocol buffers

  /// A field or a message ends before its last byte.
  case truncated
  /// A varint is longer than 64 bits.
  case badVarint
  /// A field has the number 0, or one above 2^29 - 1.
  case badFieldNumber
  /// A field has a wire type that proto3 does not use.
  case badWireType(UInt8)
  /// A known field has another wire type than its declaration.
  case unexpectedWireType(field: Int)
  /// A list has more elements than ``ProtobufReader/elementsMax``.
  case tooManyElements(field: Int)

  // MARK: gRPC

  /// A message is compressed, which this client never asks for.
  case compressed
  /// A message is announced with more bytes than the limit.
  case messageTooLarge(UInt32)
  /// A unary call was answered with no message, or with more than one.
  case notOneMessage
  /// The response has no valid `grpc-status`.
  case noStatus

  // MARK: Content

  /// A transaction was answered with other operations than it has.
  case unexpectedResponse
  /// A value under a key of the cluster is not in the format of this program, or contradicts its key.
  case badValue(Value)
  /// A record does not parse.
  case badRecord(WireError)

  /// A kind of value.
  package enum Value: Hashable, Sendable {
    case owner, position, record, set, node, configuration
  }
}
