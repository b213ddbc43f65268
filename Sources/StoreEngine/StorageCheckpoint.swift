package import NIOCore

/// A consistent copy of everything that was committed before it was made, which stays as it is while the storage goes
/// on. Every call blocks.
package protocol StorageCheckpoint: Sendable {
  /// Its files; the same for the checkpoint's life.
  var files: [CheckpointFile] { get }

  /// So many bytes of a file. Throws where they cannot be read, or are not there.
  func read(_ file: Int, at offset: UInt64, count: Int) throws(StorageError) -> ByteBuffer

  /// Removes it; nothing else is called afterwards.
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
