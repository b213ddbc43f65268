import Foundation
import TidemarkClient

func makeTidemark(
  user: String,
  directory: URL,
  token: @escaping @Sendable () async throws -> String
) -> Tidemark {
  Tidemark(
    url: URL(string: "https://chat.example.org")!,
    user: user,
    store: FileStore(directory: directory),
    tokenProvider: token
  )
}
