import Foundation
import NIOCore
import Testing

/// Return the JSON object that `write` writes, as Foundation parses it.
func jsonObject(_ write: (inout ByteBuffer) -> Void) throws -> NSDictionary {
  var buffer = ByteBuffer()
  write(&buffer)
  let data = Data(buffer.readableBytesView)
  return try #require(try JSONSerialization.jsonObject(with: data) as? NSDictionary)
}

/// Return the member at a path of names with dots between them.
func member(_ path: String, of object: NSDictionary) -> Any? {
  path.split(separator: ".").reduce(object as Any?) { found, key in (found as? NSDictionary)?[String(key)] }
}
