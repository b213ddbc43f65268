import Foundation
import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// Third-party clients against the real services.
  @Suite struct ForeignClients {
    @Test func curlIsServedOverTLSAndH2C() async throws {
      try await TestServices.with { services in
        let tls = try await Command.run(
          "curl",
          [
            "-sS", "--http2", "--cacert", services.certificate, "-X", "PUT", "-H",
            "authorization: Bearer \(services.serverToken)",
            "-H", "content-type: application/json", "-d", #"{"members":["alice","bob"]}"#, "-w",
            " %{http_version} %{http_code}", services.tlsURL + "/v1/channels/messaging:curl",
          ]
        )
        #expect(tls.out.hasSuffix(" 2 201"), "\(tls)")
        let clear = try await services.curl("GET", "/v1/channels/messaging:curl", token: services.serverToken)
        #expect(clear.status == 200)
        #expect(clear.body.contains(#""member_count":2"#))
      }
    }

    /// TLS below 1.2 is refused; 1.2 and 1.3 are served, both as h2 by ALPN.
    @Test(arguments: [("--tls-max", "1.1", false), ("--tls-max", "1.2", true), ("--tlsv1.3", "", true)])
    func onlyTLS12AndAboveIsServed(_ flag: String, _ value: String, _ isServed: Bool) async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          "curl",
          ["-sS", "--http2", "--cacert", services.certificate, flag] + (value.isEmpty ? [] : [value]) + [
            "-o", "/dev/null", "-w", "%{http_version} %{http_code}",
            services.tlsURL + "/v1/channels/messaging:x",
          ]
        )
        #expect((output.status == 0) == isServed, "\(output)")
        if isServed { #expect(output.out == "2 401") }
      }
    }

    @Test func nghttpIsServed() async throws {
      try await TestServices.with { services in
        try await services.expect(
          201,
          "PUT",
          "/v1/channels/messaging:ng",
          token: services.serverToken,
          json: #"{"members":["bob"]}"#
        )
        let output = try await Command.run(
          "nghttp",
          [
            "-v", "--no-dep", "-H", "authorization: Bearer \(services.serverToken)",
            services.h2cURL + "/v1/channels/messaging:ng",
          ]
        )
        #expect(output.status == 0)
        #expect(output.out.contains(":status: 200"), "\(output.out)")
        #expect(output.out.contains(#""cid":"messaging:ng""#), "\(output.out)")
      }
    }

    /// 2,000 requests over 8 connections with 10 streams each: every request is answered 200.
    @Test func h2loadRequestsAreAllAnswered() async throws {
      try await TestServices.with { services in
        try await services.expect(
          201,
          "PUT",
          "/v1/channels/messaging:load",
          token: services.serverToken,
          json: #"{"members":["bob"]}"#
        )
        let output = try await Command.run(
          "h2load",
          [
            "-n", "2000", "-c", "8", "-m", "10", "-H", "authorization: Bearer \(services.serverToken)",
            services.h2cURL + "/v1/channels/messaging:load",
          ]
        )
        #expect(output.out.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "\(output.out)")
        #expect(output.out.contains("status codes: 2000 2xx"), "\(output.out)")
      }
    }

    @Test(arguments: [true, false])
    func httpxIsServed(usesTLS: Bool) async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [
            TestServices.client("API/httpx_tour.py"), usesTLS ? services.tlsURL : services.h2cURL,
            usesTLS ? services.certificate : "-",
            services.serverToken, try await services.token("bob"),
          ]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok"), "\(output)")
      }
    }
  }
}
