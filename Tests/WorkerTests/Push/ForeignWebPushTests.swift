import Foundation
import TestPrograms
import TestSupport
import Testing

@testable import PushSandbox
@testable import Worker

/// Web Push beside foreign implementations: http-ece decrypts what the worker sends, and the sandbox accepts what
/// pywebpush sends.
@Suite struct ForeignWebPushTests {
  private static let python = packageRoot.appendingPathComponent(".build/python/bin/python").path
  private static let isInstalled = FileManager.default.isExecutableFile(atPath: python)

  private static func run(_ script: String, _ arguments: [String]) async throws {
    let output = try await Command.run(python, ["-c", script] + arguments, limit: .seconds(60))
    #expect(output.status == 0 && output.out == "ok\n", "\(output)")
  }

  @Test(.needs(isInstalled, "http-ece is not installed: `make test-deps` gets it from PyPI"))
  func httpECEDecrypts() async throws {
    // A key pair of Python's own, which prints the subscription and then reads the body.
    let script = """
      import base64, sys, http_ece
      from cryptography.hazmat.primitives.asymmetric import ec
      def data(text): return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
      key = ec.derive_private_key(int.from_bytes(data(sys.argv[1]), "big"), ec.SECP256R1())
      for body, text in zip(sys.argv[3::2], sys.argv[4::2]):
          plain = http_ece.decrypt(data(body), private_key=key, auth_secret=data(sys.argv[2]), version="aes128gcm")
          assert plain == data(text), plain
      print("ok")
      """
    let key = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
    let publicKey =
      "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    let secret = WebPushEncryption.randomSalt()
    let subscription = WebPushSubscription(
      endpoint: "https://push.example.net/1",
      publicKey: try #require(Base64URL.bytes(publicKey)),
      secret: secret
    )
    var arguments = [key, Base64URL.text(secret)]
    for count in [0, 1, 15, 16, 17, 1_000, WebPushEncryption.plaintextByteCountMax] {
      let text = (0..<count).map { _ in UInt8.random(in: 0...255) }
      arguments += [Base64URL.text(try WebPushEncryption.encrypt(text, for: subscription)), Base64URL.text(text)]
    }
    try await Self.run(script, arguments)
  }

  @Test(.needs(isInstalled, "pywebpush is not installed: `make test-deps` gets it from PyPI"))
  func sandboxAcceptsPyWebPush() async throws {
    try await Sandbox.with { sandbox in
      let device = try await sandbox.addDevice("webpush")
      let script = """
        import json, sys
        import requests
        from py_vapid import Vapid
        from pywebpush import WebPushException, webpush
        session = requests.Session()
        session.trust_env, session.verify = False, sys.argv[3]
        def send(payload, key):
            return webpush(
                json.loads(sys.argv[1]), json.dumps(payload), vapid_private_key=Vapid.from_file(key), ttl=60,
                vapid_claims={"sub": "mailto:ops@example.com"}, requests_session=session)
        assert send({"title": "from Python", "n": 1}, sys.argv[2]).status_code == 201
        try:
            send({}, sys.argv[4])
            print("another key was accepted")
        except WebPushException as error:
            assert error.response.status_code == 403, error
            print("ok")
        """
      let other = sandbox.files.directory + "/other.pem"
      _ = try await Command.run("openssl", ["ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", other])
      let subscription = try #require(device["subscription"]).text
      let arguments = [subscription, sandbox.files.directory + "/vapid.pem", sandbox.files.authority, other]
      try await Self.run(script, arguments)
      let payloads = try await sandbox.deliveries().map { $0["payload"] }
      #expect(payloads == [.object(["title": .string("from Python"), "n": .integer(1)])])
    }
  }
}
