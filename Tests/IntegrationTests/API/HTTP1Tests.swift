import Foundation
import LocalStack
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  /// Clients that speak HTTP/1.1: a gateway rejects them with an explanation; the load balancer serves them.
  @Suite struct HTTP1 {
    /// Python's own client, which speaks nothing newer. Over TLS without ALPN, with `http/1.1`, and in cleartext;
    /// with a body, slowly, and with a request line that never ends.
    private static let client = """
      import http.client, json, socket, ssl, sys
      tls_port, clear_port, certificate = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

      def check(response, body=True):
          assert response.status == 505 and response.version == 11, (response.status, response.version)
          assert response.getheader("content-type") == "application/problem+json", response.getheaders()
          assert response.getheader("connection") == "close", response.getheaders()
          text = response.read()
          if not body:
              assert text == b"", text
              return
          problem = json.loads(text)
          assert problem["status"] == 505 and problem["code"] == "http_version_not_supported", problem
          assert "haproxy.cfg" in problem["detail"], problem

      def context(alpn):
          made = ssl.create_default_context(cafile=certificate)
          if alpn: made.set_alpn_protocols(alpn)
          return made

      for alpn in (None, ["http/1.1"], ["http/1.0"]):
          connection = http.client.HTTPSConnection("localhost", tls_port, context=context(alpn), timeout=20)
          # http.client offers http/1.1 itself where it makes the context; here the socket is made by hand.
          raw = socket.create_connection(("127.0.0.1", tls_port), timeout=20)
          connection.sock = context(alpn).wrap_socket(raw, server_hostname="localhost")
          assert connection.sock.selected_alpn_protocol() == (alpn[0] if alpn else None)
          connection.request("GET", "/v1/openapi.yaml")
          check(connection.getresponse())

      for method, body in (("GET", None), ("POST", b"x" * 200_000), ("HEAD", None), ("DELETE", None)):
          connection = http.client.HTTPConnection("127.0.0.1", clear_port, timeout=20)
          connection.request(method, "/v1/channels/messaging:team/read", body)
          check(connection.getresponse(), method != "HEAD")

      for pieces in ((b"GE", b"T / HTTP/1.1\\r\\n", b"host: x\\r\\n", b"\\r\\n"), (b"GET / HT",), (b"P",)):
          raw = socket.create_connection(("127.0.0.1", clear_port), timeout=20)
          for piece in pieces: raw.sendall(piece)
          response = http.client.HTTPResponse(raw)
          response.begin()
          check(response)
          assert raw.recv(1) == b"", "the connection is closed"

      # Neither of the two: HTTP/2's own errors. Other protocols over TLS fail in the handshake.
      raw = socket.create_connection(("127.0.0.1", clear_port), timeout=20)
      raw.sendall(b"\\x16\\x03\\x01" + b"garbage" * 20)
      assert raw.recv(65536)[3] == 4, "a SETTINGS frame"
      try:
          context(["imap"]).wrap_socket(
              socket.create_connection(("127.0.0.1", tls_port), timeout=20), server_hostname="localhost")
          raise AssertionError("imap is spoken")
      except ssl.SSLError as error:
          assert "NO_APPLICATION_PROTOCOL" in str(error).upper().replace(" ", "_"), error
      print("ok")
      """

    @Test func gatewayRejectsHTTP1() async throws {
      try await TestServices.with { services in
        let tlsPort = services.stack.plan.gateways[0].listen.port
        let output = try await Command.run(
          TestServices.python,
          ["-c", Self.client, "\(tlsPort)", "\(services.h2cPort)", services.stack.files.certificate]
        )
        #expect(output.status == 0 && output.out.hasSuffix("ok\n"), "\(output.out)\(output.error)")
        // The commands that people try first.
        for arguments in [
          ["--cacert", services.stack.files.certificate, "https://localhost:\(tlsPort)/v1/events"],
          ["http://127.0.0.1:\(services.h2cPort)/v1/events"],
          ["-d", "{}", "http://127.0.0.1:\(services.h2cPort)/v1/channels/read"],
        ] {
          let response = try await Command.run(
            "curl",
            ["-sS", "--http1.1", "--max-time", "20", "-w", "\n%{http_version} %{http_code}"] + arguments
          )
          #expect(response.status == 0 && response.out.hasSuffix("\n1.1 505"), "\(response)")
          #expect(response.out.contains("\"code\":\"http_version_not_supported\""), "\(response)")
        }
        let document = try await services.curl("GET", "/v1/openapi.yaml")
        #expect(document.status == 200)
      }
    }

    /// The only component in between is the shipped configuration.
    private static let balancedClient = """
      import http.client, json, ssl, sys
      port, certificate, token = int(sys.argv[1]), sys.argv[2], sys.argv[3]
      connection = http.client.HTTPSConnection(
          "localhost", port, context=ssl.create_default_context(cafile=certificate), timeout=30)

      def call(method, path, body=None):
          connection.request(method, path, json.dumps(body) if body is not None else None,
              {"authorization": "Bearer " + token, "content-type": "application/json"})
          response = connection.getresponse()
          assert response.version == 11, response.version
          text = response.read()
          return response.status, json.loads(text) if text else None

      status, answer = call("PUT", "/v1/channels/messaging:old", {"members": ["alice", "bob"]})
      assert status == 201, (status, answer)
      status, answer = call("POST", "/v1/channels/messaging:old/messages", {"id": "m1", "user_id": "alice"})
      assert status == 201, (status, answer)
      status, answer = call("POST", "/v1/channels/messaging:old/read", {"user_id": "bob"})
      assert status == 200 and answer["read"]["last_read_message_id"] == "m1", (status, answer)
      status, answer = call("GET", "/v1/channels/messaging:old/messages/m1/status")
      assert status == 200 and answer["status"] == "read", (status, answer)
      status, answer = call("GET", "/v1/nothing")
      assert status == 404 and answer["code"] == "route_not_found", (status, answer)
      print("ok")
      """

    @Test func haproxyServesHTTP1() async throws {
      try await LoadBalancedServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          ["-c", Self.balancedClient, "\(services.listen.port)", services.certificate, services.serverToken]
        )
        #expect(output.status == 0 && output.out.hasSuffix("ok\n"), "\(output.out)\(output.error)")
      }
    }
  }
}
