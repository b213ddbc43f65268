/// Input of a parser whose reads may end within an element: keeps the incomplete rest for the next read.
struct PartialBytes {
  private var rest: [UInt8] = []

  /// Bytes that are not parsed yet.
  var count: Int { rest.count }

  /// Parse the next bytes behind the rest of those before.
  ///
  /// - Parameter parse: gets all unparsed bytes and returns how many it has consumed.
  mutating func feed(
    _ bytes: UnsafeRawBufferPointer,
    _ parse: (UnsafeRawBufferPointer) throws(LoadError) -> Int
  ) throws(LoadError) {
    guard !rest.isEmpty else {
      let consumed = try parse(bytes)
      rest.append(contentsOf: bytes[consumed...])
      return
    }
    rest.append(contentsOf: bytes)
    let consumed: Result<Int, LoadError> = rest.withUnsafeBytes { bytes in
      do throws(LoadError) { return .success(try parse(bytes)) } catch { return .failure(error) }
    }
    rest.removeFirst(try consumed.get())
  }
}
