package import NIOCore

/// A consistent copy of everything committed before it was made. It does not change while the storage continues. Every
/// call blocks.
package protocol StorageCheckpoint: Sendable {
  /// Files of the checkpoint; constant for its life.
  var files: [CheckpointFile] { get }

  /// Read `count` bytes of a file. Throws if they cannot be read or do not exist.
  func read(_ file: Int, at offset: UInt64, count: Int) throws(StorageError) -> ByteBuffer

  /// Remove the checkpoint; call nothing else afterwards.
  func remove()
}

/// A file of a checkpoint.
package struct CheckpointFile: Hashable, Sendable {
  package var name: String
  package var size: UInt64

  package init(name: String, size: UInt64) {
    self.name = name
    self.size = size
  }
}

extension StorageEngine {
  package func makeCheckpoint() throws(StorageError) -> any StorageCheckpoint {
    throw .unusable("this storage makes no checkpoints")
  }
}
