import Foundation
import LocalStack
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  /// Wrong input gets its named error and nothing else: the process goes on serving.
  @Suite struct WrongInput {
    private struct Case {
      var name: String
      var method = "POST"
      var path = "/v1/channels/messaging:team/read"
      var token = Caller.bob
      var body: String? = "{}"
      var arguments: [String] = []
      var status: Int
      var code: String
    }

    private enum Caller {
      case bob, mallory, server, nobody
      case raw(String)
    }

    private static let long = String(repeating: "x", count: 256)

    private static let cases: [Case] = [
      Case(name: "JSON that ends too early", body: "{\"message_id\":", status: 400, code: "invalid_json"),
      Case(name: "no object", body: "[1,2]", status: 400, code: "invalid_field"),
      Case(name: "a number for a string", body: #"{"message_id":7}"#, status: 400, code: "invalid_field"),
      Case(name: "an epoch below 0", body: #"{"unread_epoch":-1}"#, status: 400, code: "invalid_field"),
      Case(
        name: "over-long message id",
        body: #"{"message_id":"\#(long)"}"#,
        status: 400,
        code: "invalid_message_id"
      ),
      Case(
        name: "over-long channel id",
        path: "/v1/channels/messaging:\(long)/read",
        status: 400,
        code: "invalid_cid"
      ),
      Case(name: "a cid without type", path: "/v1/channels/team/read", status: 400, code: "invalid_cid"),
      Case(
        name: "unknown channel",
        path: "/v1/channels/messaging:none/read",
        status: 404,
        code: "channel_not_found"
      ),
      Case(name: "unknown message", body: #"{"message_id":"none"}"#, status: 404, code: "message_not_found"),
      Case(name: "no member", token: .mallory, status: 404, code: "channel_not_found"),
      Case(
        name: "a server for no member",
        token: .server,
        body: #"{"user_id":"mallory"}"#,
        status: 404,
        code: "member_not_found"
      ),
      Case(name: "a server for nobody", token: .server, status: 400, code: "user_id_required"),
      Case(name: "another user's name", body: #"{"user_id":"alice"}"#, status: 403, code: "user_id_mismatch"),
      Case(name: "no token", token: .nobody, status: 401, code: "token_missing"),
      Case(
        name: "a token that is empty",
        token: .nobody,
        arguments: ["-H", "authorization: Bearer "],
        status: 401,
        code: "token_missing"
      ),
      Case(name: "no JWT", token: .raw("abc"), status: 401, code: "token_malformed"),
      Case(name: "wrong method", method: "DELETE", body: nil, status: 405, code: "method_not_allowed"),
      Case(
        name: "no such route",
        method: "GET",
        path: "/v2/nothing",
        body: nil,
        status: 404,
        code: "route_not_found"
      ),
      Case(
        name: "not JSON by its type",
        arguments: ["-H", "content-type: text/plain"],
        status: 415,
        code: "content_type_not_supported"
      ),
      Case(name: "no thread id", body: #"{"thread_id":"\u0007"}"#, status: 400, code: "invalid_message_id"),
      Case(
        name: "truncate by a user",
        path: "/v1/channels/messaging:team/truncate",
        status: 403,
        code: "server_token_required"
      ),
      Case(
        name: "truncate at no message id",
        path: "/v1/channels/messaging:team/truncate",
        token: .server,
        body: #"{"before":"\u0007"}"#,
        status: 400,
        code: "invalid_message_id"
      ),
      Case(
        name: "mark all for nobody",
        path: "/v1/channels/read",
        token: .server,
        status: 400,
        code: "user_id_required"
      ),
      Case(
        name: "totals that are no yes or no",
        path: "/v1/channels/messaging:team/read?totals=1",
        status: 400,
        code: "invalid_query"
      ),
      Case(
        name: "another user's totals",
        method: "GET",
        path: "/v1/users/somebody-else/unread",
        body: nil,
        status: 403,
        code: "user_id_mismatch"
      ),
      Case(
        name: "events since what was no event",
        method: "GET",
        path: "/v1/events?since=yesterday",
        body: nil,
        status: 400,
        code: "invalid_field"
      ),
      Case(
        name: "set-up by a user",
        method: "PUT",
        path: "/v1/channels/messaging:mine",
        status: 403,
        code: "server_token_required"
      ),
      Case(
        name: "unknown option",
        method: "PUT",
        path: "/v1/channel-types/messaging",
        token: .server,
        body: #"{"read_receipts":true}"#,
        status: 400,
        code: "unknown_field"
      ),
      Case(
        name: "an option's value out of range",
        method: "PUT",
        path: "/v1/channel-types/messaging",
        token: .server,
        body: #"{"mark_unread":"sometimes"}"#,
        status: 400,
        code: "invalid_option"
      ),
      Case(
        name: "a limit of 0",
        method: "GET",
        path: "/v1/channels/messaging:team/read-state?limit=0",
        body: nil,
        status: 400,
        code: "invalid_query"
      ),
      Case(
        name: "a cursor of somebody's making",
        method: "GET",
        path: "/v1/channels/messaging:team/read-state?cursor=zzz",
        body: nil,
        status: 400,
        code: "invalid_cursor"
      ),
    ]

    @Test func eachHasItsName() async throws {
      try await Pair.with { pair in
        try await Self.prepare(pair)
        let tokens = [try await pair.token("bob"), try await pair.token("mallory")]
        for item in Self.cases {
          let token: String? =
            switch item.token {
            case .bob: tokens[0]
            case .mallory: tokens[1]
            case .server: pair.serverToken
            case .nobody: nil
            case .raw(let text): text
            }
          // An explicit content type among the arguments comes instead of JSON's.
          var arguments = item.arguments
          var json = item.body
          if !arguments.isEmpty, let body = json {
            arguments += ["--data-binary", body]
            json = nil
          }
          let answer = try await pair.curl(
            item.method,
            item.path,
            token: token,
            json: json,
            arguments: arguments
          )
          #expect(answer.status == item.status, "\(item.name): \(answer)")
          #expect(answer.body.contains("\"code\":\"\(item.code)\""), "\(item.name): \(answer)")
        }
        try await Self.isWell(pair)
      }
    }

    @Test func tokensThatAreNotOurs() async throws {
      try await Pair.with { pair in
        try await Self.prepare(pair)
        let foreign = await TokenMint(secret: Array("another secret of at least 32 bytes".utf8))
        func segment(_ json: String) -> String {
          Data(json.utf8).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
        }
        let unsigned = segment(#"{"alg":"none","typ":"JWT"}"#) + "." + segment(#"{"user_id":"bob"}"#) + "."
        let good = try await pair.token("bob")
        let tampered = good.split(separator: ".")
        let rows: [(String, String, String)] = [
          ("forged", try await foreign.user("bob", lifetime: .seconds(60)), "token_signature_invalid"),
          ("expired", try await pair.mint.user("bob", lifetime: .seconds(-60)), "token_expired"),
          (
            "another's claims under a good signature",
            "\(tampered[0]).\(segment(#"{"user_id":"alice","exp":9999999999}"#)).\(tampered[2])",
            "token_signature_invalid"
          ),
        ]
        for (name, token, code) in rows {
          let answer = try await pair.curl("POST", "/v1/channels/messaging:team/read", token: token)
          #expect(answer.status == 401 && answer.body.contains("\"code\":\"\(code)\""), "\(name): \(answer)")
        }
        // What `none` is called is the library's affair; that it is refused is ours.
        let answer = try await pair.curl("POST", "/v1/channels/messaging:team/read", token: unsigned)
        #expect(answer.status == 401 && answer.body.contains("\"code\":\"token_"), "alg none: \(answer)")
        try await Self.isWell(pair)
      }
    }

    @Test func tooLarge() async throws {
      try await Pair.with { pair in
        try await Self.prepare(pair)
        let bob = try await pair.token("bob")
        let path = pair.directory + "/large.json"
        try ("{\"message_id\":\"" + String(repeating: "x", count: 3 << 20) + "\"}")
          .write(toFile: path, atomically: true, encoding: .utf8)
        let body = try await pair.curl(
          "POST",
          "/v1/channels/messaging:team/read",
          token: bob,
          json: "@" + path
        )
        #expect(body.status == 413 && body.body.contains("\"code\":\"body_too_large\""), "\(body)")
        let header = "x-large: " + String(repeating: "x", count: 20_000)
        let headers = try await pair.curl(
          "POST",
          "/v1/channels/messaging:team/read",
          token: bob,
          arguments: ["-H", header]
        )
        #expect(
          headers.status == 431 && headers.body.contains("\"code\":\"headers_too_large\""),
          "\(headers)"
        )
        try await Self.isWell(pair)
      }
    }

    /// On the gateway's port: GOAWAY or close. On the store's: an error frame, then close.
    @Test func garbageOnBothPorts() async throws {
      try await Pair.with { pair in
        try await Self.prepare(pair)
        let store = pair.stack.plan.store.port
        // Whatever comes back is HTTP/2 frames; a GOAWAY frame (type 7) is among them, or nothing at all came before
        // the close.
        let frames = try await Self.exchange(
          String(repeating: "\u{1}garbage", count: 500),
          port: pair.h2cPort
        )
        #expect(frames.isEmpty || frames.contains(7), "\(Array(frames.prefix(64)))")
        let old = try await Self.exchange("GET / HTTP/1.1\r\nHost: x\r\n\r\n", port: pair.h2cPort)
        #expect(String(decoding: old, as: UTF8.self).hasPrefix("HTTP/1.1 505 "), "\(Array(old.prefix(64)))")
        let rows: [([UInt8], UInt8, String)] = [
          ([0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0, 0, 0, 0, 0], 2, "frame_too_large"),
          ([0, 0, 0, 3, 1, 0, 0], 1, "malformed_frame"),
          ([0, 0, 0, 8, 0x77, 0, 0, 0, 0, 0, 0, 0], 5, "unknown_kind"),
          ([0, 0, 0, 8, 0x14, 0, 0, 0, 0, 0, 0, 9], 7, "handshake_required"),
          ([0, 0, 0, 8, 1, 0x80, 0, 0, 0, 0, 0, 0], 1, "malformed_frame"),
          ([0, 0, 0, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0x54], 1, "malformed_frame"),
        ]
        for (bytes, code, name) in rows {
          let answer = try await Self.exchange(
            String(decoding: bytes, as: UTF8.self),
            raw: bytes,
            port: store
          )
          // An error frame: kind 0x0F behind the length, its code the first byte of the payload; then the close that
          // ended the reading.
          #expect(
            answer.count > 12 && answer[4] == 0x0F && answer[12] == code,
            "\(name): \(Array(answer.prefix(40)))"
          )
        }
        try await Self.isWell(pair)
      }
    }

    private static func prepare(_ pair: Pair) async throws {
      try await pair.expect(
        201,
        "PUT",
        "/v1/channels/messaging:team",
        token: pair.serverToken,
        json: #"{"members":["alice","bob"]}"#
      )
      try await pair.expect(
        201,
        "POST",
        "/v1/channels/messaging:team/messages",
        token: pair.serverToken,
        json: #"{"id":"m1","user_id":"alice"}"#
      )
    }

    /// The others are still served, and nothing of what was refused has been applied.
    private static func isWell(_ pair: Pair) async throws {
      let state = try await pair.expect(
        200,
        "GET",
        "/v1/channels/messaging:team/read-state",
        token: pair.token("alice")
      )
      let rows = state["read"] as? [[String: Any]] ?? []
      #expect(rows.count == 2)
      let bob = rows.first { ($0["user"] as? [String: String])?["id"] == "bob" }
      #expect(bob?["last_read_seq"] as? Int == 0)
    }

    /// Sends bytes and reads until the other side closes, 5 s at most.
    private static func exchange(_ text: String, raw: [UInt8]? = nil, port: Int) async throws -> [UInt8] {
      let path = NSTemporaryDirectory() + "tidemark-bytes-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: path) }
      try Data(raw ?? Array(text.utf8)).write(to: URL(fileURLWithPath: path))
      let script = """
        import socket, sys
        s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)
        s.sendall(open(sys.argv[2], "rb").read())
        got = b""
        try:
            while True:
                more = s.recv(65536)
                if not more: break
                got += more
        except ConnectionError: pass
        except TimeoutError: sys.exit("the connection was not closed in 5 s")
        print(got.hex())
        """
      let output = try await Command.run(Pair.python, ["-c", script, "\(port)", path])
      guard output.status == 0 else { throw Unexpected("port \(port): \(output.error)") }
      var bytes: [UInt8] = []
      var digits = output.out.filter(\.isHexDigit)[...]
      while let byte = UInt8(digits.prefix(2), radix: 16) {
        bytes.append(byte)
        digits = digits.dropFirst(2)
      }
      return bytes
    }

    /// A flag is an environment variable too, also the one that only asks.
    @Test(arguments: ["tidemark-gateway", "tidemark-store"])
    func healthCheck(_ program: String) async throws {
      let url = "http://127.0.0.1:\(try LoopbackPorts.free(1)[0].port)/ready"
      let output = try await Command.run(
        Pair.binaries + "/" + program,
        [],
        environment: ["TIDEMARK_HEALTH_CHECK": url]
      )
      #expect(output.status == 1 && (output.out + output.error).hasPrefix(url), "\(output)")
    }
  }
}
