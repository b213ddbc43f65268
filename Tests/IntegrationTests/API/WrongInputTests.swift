import Foundation
import GatewayClient
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Wrong input gets its own error code and has no other effect: the process keeps serving.
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
      Case(name: "truncated JSON", body: "{\"message_id\":", status: 400, code: "invalid_json"),
      Case(name: "not an object", body: "[1,2]", status: 400, code: "invalid_field"),
      Case(name: "number instead of string", body: #"{"message_id":7}"#, status: 400, code: "invalid_field"),
      Case(name: "negative epoch", body: #"{"unread_epoch":-1}"#, status: 400, code: "invalid_field"),
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
      Case(name: "cid without type", path: "/v1/channels/team/read", status: 400, code: "invalid_cid"),
      Case(
        name: "unknown channel",
        path: "/v1/channels/messaging:none/read",
        status: 404,
        code: "channel_not_found"
      ),
      Case(name: "unknown message", body: #"{"message_id":"none"}"#, status: 404, code: "message_not_found"),
      Case(name: "not a member", token: .mallory, status: 404, code: "channel_not_found"),
      Case(
        name: "server for a non-member",
        token: .server,
        body: #"{"user_id":"mallory"}"#,
        status: 404,
        code: "member_not_found"
      ),
      Case(name: "server without user_id", token: .server, status: 400, code: "user_id_required"),
      Case(name: "another user's name", body: #"{"user_id":"alice"}"#, status: 403, code: "user_id_mismatch"),
      Case(name: "missing token", token: .nobody, status: 401, code: "token_missing"),
      Case(
        name: "empty token",
        token: .nobody,
        arguments: ["-H", "authorization: Bearer "],
        status: 401,
        code: "token_missing"
      ),
      Case(name: "not a JWT", token: .raw("abc"), status: 401, code: "token_malformed"),
      Case(name: "wrong method", method: "DELETE", body: nil, status: 405, code: "method_not_allowed"),
      Case(
        name: "unknown route",
        method: "GET",
        path: "/v2/nothing",
        body: nil,
        status: 404,
        code: "route_not_found"
      ),
      Case(
        name: "wrong content type",
        arguments: ["-H", "content-type: text/plain"],
        status: 415,
        code: "content_type_not_supported"
      ),
      Case(name: "bad thread id", body: #"{"thread_id":"\u0007"}"#, status: 400, code: "invalid_message_id"),
      Case(
        name: "truncate with a user token",
        path: "/v1/channels/messaging:team/truncate",
        status: 403,
        code: "server_token_required"
      ),
      Case(
        name: "truncate at an invalid message id",
        path: "/v1/channels/messaging:team/truncate",
        token: .server,
        body: #"{"before":"\u0007"}"#,
        status: 400,
        code: "invalid_message_id"
      ),
      Case(
        name: "mark all without user_id",
        path: "/v1/channels/read",
        token: .server,
        status: 400,
        code: "user_id_required"
      ),
      Case(
        name: "totals with a value that is not Boolean",
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
        name: "events since an invalid event id",
        method: "GET",
        path: "/v1/events?since=yesterday",
        body: nil,
        status: 400,
        code: "invalid_field"
      ),
      Case(
        name: "channel creation with a user token",
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
        name: "option value out of range",
        method: "PUT",
        path: "/v1/channel-types/messaging",
        token: .server,
        body: #"{"mark_unread":"sometimes"}"#,
        status: 400,
        code: "invalid_option"
      ),
      Case(
        name: "limit of 0",
        method: "GET",
        path: "/v1/channels/messaging:team/read-state?limit=0",
        body: nil,
        status: 400,
        code: "invalid_query"
      ),
      Case(
        name: "forged cursor",
        method: "GET",
        path: "/v1/channels/messaging:team/read-state?cursor=zzz",
        body: nil,
        status: 400,
        code: "invalid_cursor"
      ),
    ]

    @Test func wrongInputHasItsOwnCode() async throws {
      try await TestServices.with { services in
        try await Self.prepare(services)
        let tokens = [try await services.token("bob"), try await services.token("mallory")]
        for item in Self.cases {
          let token: String? =
            switch item.token {
            case .bob: tokens[0]
            case .mallory: tokens[1]
            case .server: services.serverToken
            case .nobody: nil
            case .raw(let text): text
            }
          // An explicit content type among the arguments replaces the JSON default.
          var arguments = item.arguments
          var json = item.body
          if !arguments.isEmpty, let body = json {
            arguments += ["--data-binary", body]
            json = nil
          }
          let response = try await services.curl(
            item.method,
            item.path,
            token: token,
            json: json,
            arguments: arguments
          )
          #expect(response.status == item.status, "\(item.name): \(response)")
          #expect(response.body.contains("\"code\":\"\(item.code)\""), "\(item.name): \(response)")
        }
        try await Self.isWell(services)
      }
    }

    @Test func foreignTokensAreRejected() async throws {
      try await TestServices.with { services in
        try await Self.prepare(services)
        let foreign = await TokenIssuer(secret: Array("another secret of at least 32 bytes".utf8))
        func segment(_ json: String) -> String {
          Data(json.utf8).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
        }
        let unsigned = segment(#"{"alg":"none","typ":"JWT"}"#) + "." + segment(#"{"user_id":"bob"}"#) + "."
        let good = try await services.token("bob")
        let tampered = good.split(separator: ".")
        let rows: [(String, String, String)] = [
          ("forged", try await foreign.user("bob", lifetime: .seconds(60)), "token_signature_invalid"),
          ("expired", try await services.tokenIssuer.user("bob", lifetime: .seconds(-60)), "token_expired"),
          (
            "another's claims under a good signature",
            "\(tampered[0]).\(segment(#"{"user_id":"alice","exp":9999999999}"#)).\(tampered[2])",
            "token_signature_invalid"
          ),
        ]
        for (name, token, code) in rows {
          let response = try await services.curl("POST", "/v1/channels/messaging:team/read", token: token)
          #expect(
            response.status == 401 && response.body.contains("\"code\":\"\(code)\""),
            "\(name): \(response)"
          )
        }
        // The library chooses the code for `none`; this test checks only that the token is rejected.
        let response = try await services.curl("POST", "/v1/channels/messaging:team/read", token: unsigned)
        #expect(
          response.status == 401 && response.body.contains("\"code\":\"token_"),
          "alg none: \(response)"
        )
        try await Self.isWell(services)
      }
    }

    @Test func oversizeRequestsAreRejected() async throws {
      try await TestServices.with { services in
        try await Self.prepare(services)
        let bob = try await services.token("bob")
        let path = services.directory + "/large.json"
        try ("{\"message_id\":\"" + String(repeating: "x", count: 3 << 20) + "\"}")
          .write(toFile: path, atomically: true, encoding: .utf8)
        let body = try await services.curl(
          "POST",
          "/v1/channels/messaging:team/read",
          token: bob,
          json: "@" + path
        )
        #expect(body.status == 413 && body.body.contains("\"code\":\"body_too_large\""), "\(body)")
        let header = "x-large: " + String(repeating: "x", count: 20_000)
        let headers = try await services.curl(
          "POST",
          "/v1/channels/messaging:team/read",
          token: bob,
          arguments: ["-H", header]
        )
        #expect(
          headers.status == 431 && headers.body.contains("\"code\":\"headers_too_large\""),
          "\(headers)"
        )
        try await Self.isWell(services)
      }
    }

    /// On the gateway's port: GOAWAY or close. On the store's port: an error frame, then close.
    @Test func garbageClosesConnections() async throws {
      try await TestServices.with { services in
        try await Self.prepare(services)
        let store = services.stack.plan.store.port
        // Every response consists of HTTP/2 frames. It contains a GOAWAY frame (type 7), or is empty before the close.
        let frames = try await Self.exchange(
          String(repeating: "\u{1}garbage", count: 500),
          port: services.h2cPort
        )
        #expect(frames.isEmpty || frames.contains(7), "\(Array(frames.prefix(64)))")
        let old = try await Self.exchange("GET / HTTP/1.1\r\nHost: x\r\n\r\n", port: services.h2cPort)
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
          let response = try await Self.exchange(
            String(decoding: bytes, as: UTF8.self),
            raw: bytes,
            port: store
          )
          // An error frame: kind 0x0F after the length, and its code in the first byte of the payload. Then the close
          // that ended the read.
          #expect(
            response.count > 12 && response[4] == 0x0F && response[12] == code,
            "\(name): \(Array(response.prefix(40)))"
          )
        }
        try await Self.isWell(services)
      }
    }

    private static func prepare(_ services: TestServices) async throws {
      try await services.expect(
        201,
        "PUT",
        "/v1/channels/messaging:team",
        token: services.serverToken,
        json: #"{"members":["alice","bob"]}"#
      )
      try await services.expect(
        201,
        "POST",
        "/v1/channels/messaging:team/messages",
        token: services.serverToken,
        json: #"{"id":"m1","user_id":"alice"}"#
      )
    }

    /// Other callers are still served, and no rejected request was applied.
    private static func isWell(_ services: TestServices) async throws {
      let state = try await services.expect(
        200,
        "GET",
        "/v1/channels/messaging:team/read-state",
        token: services.token("alice")
      )
      let rows = state["read"] as? [[String: Any]] ?? []
      #expect(rows.count == 2)
      let bob = rows.first { ($0["user"] as? [String: String])?["id"] == "bob" }
      #expect(bob?["last_read_seq"] as? Int == 0)
    }

    /// Send bytes and read until the peer closes, for at most 5 s.
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
      let output = try await Command.run(TestServices.python, ["-c", script, "\(port)", path])
      guard output.status == 0 else { throw Unexpected("port \(port): \(output.error)") }
      var bytes: [UInt8] = []
      var digits = output.out.filter(\.isHexDigit)[...]
      while let byte = UInt8(digits.prefix(2), radix: 16) {
        bytes.append(byte)
        digits = digits.dropFirst(2)
      }
      return bytes
    }

    /// Each flag also works as an environment variable, `--health-check` included.
    @Test(arguments: ["tidemark-gateway", "tidemark-store"])
    func flagsWorkAsEnvironmentVariables(_ program: String) async throws {
      let url = "http://127.0.0.1:\(try LoopbackPorts.free(1)[0].port)/ready"
      let output = try await Command.run(
        TestServices.binaries + "/" + program,
        [],
        environment: ["TIDEMARK_HEALTH_CHECK": url]
      )
      #expect(output.status == 1 && (output.out + output.error).hasPrefix(url), "\(output)")
    }

    /// An empty setting that restricts access is a mistake of a template: the process does not start without it.
    @Test func emptyRestrictionsAreRefused() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-empty-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let secret = directory + "/secret"
      try "0123456789abcdef0123456789abcdef\n".write(toFile: secret, atomically: true, encoding: .utf8)
      let withKey =
        ["--listen", "127.0.0.1:0", "--h2c", "--store", "127.0.0.1:1", "--jwt-secret-file"] + [secret]
      let store = ["--listen", "127.0.0.1:0", "--data", directory + "/data"]
      let restrictions = [
        "secret-file", "jwt-issuer", "jwt-audience", "rate-user", "rate-address", "connections-per-address",
      ]
      let refused =
        restrictions.map { ("tidemark-gateway", withKey, $0) } + [
          ("tidemark-store", store, "secret-file"),
          ("tidemark-store", store + ["--secret-file", secret], "tls-ca"),
        ]
      for (program, flags, name) in refused {
        let output = try await Command.run(TestServices.binaries + "/" + program, flags + ["--" + name, ""])
        #expect(
          output.status == 78 && output.error.contains("--\(name) is empty"),
          "\(program) --\(name): \(output)"
        )
      }
    }
  }
}
