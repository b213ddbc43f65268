import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import TestSupport
import Testing
import Yams

@testable import Gateway

/// Compares Proto/openapi.yaml with the code. OpenAPITests compares it with the responses of the real programs.
@Suite struct APIDocumentTests {
  private typealias Object = [String: Any]

  private static let methods: [(name: String, method: HTTP2Method)] = [
    ("get", .get), ("put", .put), ("post", .post), ("delete", .delete), ("patch", .patch),
  ]

  /// Codes that HAProxy sends in the gateways' place (Deploy/haproxy).
  private static let codesOfTheLoadBalancer: Set<String> = ["gateway_unavailable", "request_timeout"]
  /// The statuses that only HAProxy sends.
  private static let statusesOfTheLoadBalancer: Set<String> = ["408", "502", "504"]

  /// The code of the only HTTP/1 answer.
  private static let codesOfHTTP1: Set<String> = ["http_version_not_supported"]

  private let document: Object
  private let operations: [(path: String, method: HTTP2Method, operation: Object)]

  init() throws {
    document = try #require(try Yams.load(yaml: String(buffer: EmbeddedFile.apiDocument.plain.body)) as? Object)
    var operations: [(path: String, method: HTTP2Method, operation: Object)] = []
    for (path, item) in try #require(document["paths"] as? [String: Object]) {
      for (name, method) in Self.methods {
        if let operation = item[name] as? Object { operations.append((path, method, operation)) }
      }
    }
    self.operations = operations
  }

  /// The name of the route that a described path matches, with valid values for its parts, or the problem code.
  private static func route(_ method: HTTP2Method, _ path: String) -> String {
    var concrete = path
    for (part, value) in [
      ("{cid}", "messaging:general"), ("{type}", "messaging"), ("{id}", "m1"), ("{user}", "bob"),
      ("{name}", "relay"), ("{jti}", "backend%2F7"),
    ] { concrete = concrete.replacingOccurrences(of: part, with: value) }
    let bytes = Array(concrete.utf8)
    do throws(Problem) {
      return "\(try Router().match(method, bytes.span.bytes, PathScratch()).route.name)"
    } catch {
      return error.code.rawValue
    }
  }

  @Test func describedOperationsMatchImplementedRoutes() {
    for (path, method, operation) in operations {
      #expect(Self.route(method, path) == operation["operationId"] as? String, "\(method) \(path)")
    }
    let described = operations.compactMap { $0.operation["operationId"] as? String }
    let built = Route.allCases.filter(\.isDescribed)
    #expect(described.count == built.count)
    #expect(Set(described) == Set(built.map { "\($0.name)" }))
    // No described path takes a method that is not described.
    for path in Set(operations.map(\.path)) {
      let known = operations.filter { $0.path == path }.map(\.method)
      for (_, method) in Self.methods where !known.contains(method) {
        #expect(Self.route(method, path) == "method_not_allowed", "\(method) \(path)")
      }
    }
  }

  /// Which callers each route accepts, and which routes can answer 501.
  @Test func describedSecurityMatchesRouteCallers() throws {
    for route in Route.allCases where route.isDescribed {
      let operation = try operation(of: route)
      let security =
        operation["security"] as? [[String: Any]] ?? document["security"] as? [[String: Any]] ?? []
      let callers = Set(security.map { $0.keys.first ?? "nobody" }).subtracting(["accessToken"])
      let expected: Set<String>
      switch route.callers {
      case .server: expected = ["serverToken"]
      case .user: expected = ["serverToken", "userToken"]
      case .credentialInBody: expected = ["nobody", "serverToken"]
      case .unauthenticated, .console: expected = ["nobody"]
      }
      #expect(callers == expected, "\(route)")
      let statuses = try codes(of: operation)
      #expect(
        (statuses["501"] != nil) == route.needsTicketSecret,
        "501 is described for the routes that need a ticket secret, and only for them: \(route)"
      )
      #expect(
        (statuses["403"]?.contains("server_token_required") ?? false)
          == (route.callers == .server || [.putUser, .putMember, .acknowledgePushes].contains(route))
      )
      #expect((statuses["401"] != nil) == (route != .apiDocument && route != .sdkFile), "\(route)")
    }
  }

  @Test func describedCodesMatchProblemCodesAndStatuses() throws {
    let schemas = try #require((document["components"] as? Object)?["schemas"] as? [String: Object])
    let listed = try #require(schemas["ProblemCode"]?["enum"] as? [String])
    let known = Set(ProblemCode.allCases.map(\.rawValue)).union(Self.codesOfTheLoadBalancer)
    #expect(listed.count == known.count && Set(listed) == known)
    var used: Set<String> = []
    for (path, _, operation) in operations {
      for (status, codes) in try codes(of: operation) {
        used.formUnion(codes)
        for code in codes where !Self.statusesOfTheLoadBalancer.contains(status) {
          guard let own = ProblemCode(rawValue: code) else {
            #expect(Self.codesOfTheLoadBalancer.contains(code), "\(path) has \(code)")
            continue
          }
          // Lists of a deleted message answer 404, not 409.
          let isList = own == .messageDeleted && status == "404"
          #expect("\(own.status)" == status || isList, "\(path) has \(code) with \(status)")
        }
      }
    }
    // Codes that no response has are codes of entries in answers.
    let entries: Set<String> = [
      "own_message", "receipt_expired", "not_expected", "ticket_invalid",
      "ticket_expired", "line_too_long", "not_a_member", "import_conflict", "import_gap", "import_order",
      "time_in_future",
    ]
    let ofConsole: Set<String> = ["console_read_only", "console_code_invalid"]
    #expect(known.subtracting(used) == entries.union(Self.codesOfHTTP1).union(ofConsole))
    let text = String(buffer: EmbeddedFile.apiDocument.plain.body)
    for code in entries {
      #expect(
        text.split(separator: "enum: [").dropFirst().contains { $0.prefix { $0 != "]" }.contains(code) }
      )
    }
  }

  // MARK: Names

  /// The fields of each route's JSON body.
  private static let bodies = Route.allCases.filter(\.isDescribed).compactMap { route in
    route.spec.body.map { (route, $0) }
  }

  @Test func describedBodyFieldsMatchKnownFields() throws {
    var described: Set<String> = []
    for (_, _, operation) in operations {
      guard let body = operation["requestBody"] as? Object,
        try (member(of: body, ["content"]) as? Object)?["application/json"] != nil
      else { continue }
      described.insert(try #require(operation["operationId"] as? String))
    }
    // The body of a hook is defined by its sender.
    #expect(described == Set(Self.bodies.map { "\($0.0.name)" } + ["\(Route.receiveHook.name)"]))
    for (route, fields) in Self.bodies {
      let schema = try member(
        of: try operation(of: route),
        ["requestBody", "content", "application/json", "schema"]
      )
      try expect(schema, describes: fields, "\(route.name)")
    }
  }

  /// The fields of an import's lines.
  @Test func describedLinesMatchKnownFields() throws {
    let choices = try #require(
      try member(of: document, ["components", "schemas", "TransferLine", "oneOf"]) as? [Object]
    )
    var described: [String: Any] = [:]
    for choice in choices {
      described.merge(try #require(choice["properties"] as? Object)) { _, _ in Issue.record("described twice") }
    }
    let line: Object = ["additionalProperties": false, "properties": described]
    try expect(line, describes: .importLine, "import")
  }

  /// Expect a described object to have exactly the built fields, and `additionalProperties: false`.
  private func expect(_ schema: Any, describes known: KnownFields, _ path: String) throws {
    let schema = try object(in: schema, path)
    #expect(schema["additionalProperties"] as? Bool == false, "\(path)")
    let properties = try #require(schema["properties"] as? Object, "\(path)")
    var built: Set<String> = []
    for (name, content) in zip(known.names.map { "\($0)" }, known.contents) {
      built.insert(name)
      guard let property = properties[name] else { continue }
      switch content {
      case .value: continue
      case .object(let fields): try expect(property, describes: fields, "\(path).\(name)")
      case .objects(let fields):
        var array = try resolved(try #require(property as? Object))
        if let choices = array["oneOf"] as? [Object] {
          array = try #require(try choices.map { try resolved($0) }.first { $0["items"] != nil }, "\(path).\(name)")
        }
        try expect(try #require(array["items"]), describes: fields, "\(path).\(name)[]")
      }
    }
    #expect(Set(properties.keys) == built, "\(path)")
  }

  /// The object schema among a schema's alternatives, with references resolved.
  private func object(in schema: Any, _ path: String) throws -> Object {
    let schema = try resolved(try #require(schema as? Object, "\(path)"))
    if schema["properties"] != nil { return schema }
    let choices = try #require(schema["oneOf"] as? [Object], "\(path)")
    return try #require(
      choices.lazy.compactMap { try? self.resolved($0) }.first { $0["properties"] != nil },
      "\(path)"
    )
  }

  @Test func describedQueryParametersMatchRoutes() throws {
    for (path, _, operation) in operations {
      let item = try #require((document["paths"] as? Object)?[path] as? Object)
      let listed = (item["parameters"] as? [Object] ?? []) + (operation["parameters"] as? [Object] ?? [])
      var described: Set<String> = []
      for parameter in listed {
        let parameter = try resolved(parameter)
        if parameter["in"] as? String == "query" {
          described.insert(try #require(parameter["name"] as? String))
        }
      }
      let route = try #require(Route.allCases.first { "\($0.name)" == operation["operationId"] as? String })
      // The `access_token` of an event stream is described under security schemes.
      if route == .events { described.insert("access_token") }
      #expect(described == Set((route.spec.queryParameters ?? []).map { "\($0)" }), "\(path)")
      let refusals = try codes(of: operation)["400"] ?? []
      #expect(refusals.contains("unknown_field") == (route != .receiveHook), "\(path)")
    }
  }

  @Test func describedLimitsMatchGatewayLimits() throws {
    let limits = GatewayLimits()
    let table: [(Route, path: [String], limit: Int)] = [
      (.registerMessages, ["messages", "maxItems"], limits.messagesPerRequest),
      (.putChannels, ["channels", "maxItems"], limits.entriesPerRequest),
      (.putUsers, ["users", "maxItems"], limits.entriesPerRequest),
      (.readStates, ["cids", "maxItems"], limits.entriesPerRequest),
      (.markDelivered, ["latest_delivered_messages", "maxItems"], limits.entriesPerRequest),
      (.markReadMany, ["read_by_channel", "maxProperties"], limits.channelsPerRequest),
      (.acknowledgeReceipts, ["message_ids", "maxItems"], limits.entriesPerRequest),
      (.acknowledgeReceipts, ["note", "maxLength"], limits.noteBytes),
      (.statuses, ["message_ids", "maxItems"], limits.entriesPerRequest),
      (.unreadOfUsers, ["user_ids", "maxItems"], limits.entriesPerRequest),
      (.issueTickets, ["tickets", "maxItems"], limits.pushesPerRequest),
      (.issueTickets, ["ttl", "maximum"], Int(GatewayLimits.ticketSecondsMax)),
      (.acknowledgePushes, ["tickets", "maxItems"], limits.pushesPerRequest),
      (.acknowledgePushes, ["acks", "maxItems"], limits.pushesPerRequest),
      (.claimPushJobs, ["limit", "maximum"], Int(PushJobsPart.jobsMax)),
      (.claimPushJobs, ["lease_seconds", "maximum"], Int(PushJobsPart.leaseSecondsMax)),
      (.renewPushJobs, ["ids", "maxItems"], Int(PushJobsPart.jobsMax)),
      (.renewPushJobs, ["lease_seconds", "maximum"], Int(PushJobsPart.leaseSecondsMax)),
      (.finishPushJobs, ["ids", "maxItems"], Int(PushJobsPart.jobsMax)),
      (.putConsumer, ["types", "maxItems"], FeedRecordKinds.countMax),
      (.putConsumer, ["channel_types", "maxItems"], FeedConsumerTable.channelTypesMax),
      (.commitConsumer, ["state", "maxLength"], FeedConsumerTable.stateBytesMax),
      (.leaseConsumer, ["ttl_seconds", "maximum"], Int(FeedLeases.millisecondsMax / 1_000)),
    ]
    for (route, path, limit) in table {
      let body = try member(
        of: try operation(of: route),
        ["requestBody", "content", "application/json", "schema", "properties"]
      )
      #expect(try member(of: body, path) as? Int == limit, "\(route) \(path)")
    }
    let marked = try member(
      of: try operation(of: .markReadMany),
      ["responses", "200", "content", "application/json", "schema", "oneOf"]
    )
    #expect(
      try member(of: try #require((marked as? [Any])?.last), ["properties", "failed", "maxItems"]) as? Int
        == limits.failedChannels
    )
    #expect(
      try #require(try operation(of: .unreadOfUser)["description"] as? String)
        .contains("\(limits.countedChannels.formatted(.number.locale(Locale(identifier: "en_US")))) channels")
    )
    #expect(
      try member(of: document, ["components", "schemas", "NewMembers", "maxItems"]) as? Int
        == limits.membersPerRequest
    )
    #expect(
      try member(of: document, ["components", "schemas", "FeedRecordType", "enum"]) as? [String]
        == FeedRecordKind.allCases.filter { $0 != .gap }.map { "\($0.name)" }
    )
    let job = ["components", "schemas", "PushJob", "properties"]
    #expect(try member(of: document, job + ["users", "maxItems"]) as? Int == PushJobTable.usersMax)
    #expect(try member(of: document, job + ["ttl", "maximum"]) as? Int == Int(PushJobTable.lifetimeMax / 1_000))
    let leased = try member(
      of: try operation(of: .leaseConsumer),
      ["responses", "200", "content", "application/json", "schema", "properties"]
    )
    #expect(try member(of: leased, ["workers", "maximum"]) as? Int == FeedLeases.workersMax)
    let listed = try member(
      of: try operation(of: .listConsumers),
      ["responses", "200", "content", "application/json", "schema", "properties"]
    )
    #expect(try member(of: listed, ["consumers", "maxItems"]) as? Int == FeedConsumerTable.countMax)
    #expect(
      try member(of: document, ["components", "parameters", "limit", "schema", "maximum"]) as? Int
        == limits.rowsPerPage
    )
  }

  private func operation(of route: Route) throws -> Object {
    try #require(
      operations.first { $0.operation["operationId"] as? String == "\(route.name)" }?.operation,
      "\(route)"
    )
  }

  /// The problem codes of an operation's answers, by status.
  private func codes(of operation: Object) throws -> [String: Set<String>] {
    var found: [String: Set<String>] = [:]
    for (status, response) in try #require(operation["responses"] as? [String: Object]) {
      let response = try resolved(response)
      guard let content = (response["content"] as? Object)?["application/problem+json"] else { continue }
      let codes = try member(of: content, ["schema", "properties", "code", "enum"])
      found[status] = Set(try #require(codes as? [String]))
      #expect("\(try member(of: content, ["schema", "properties", "status", "const"]))" == status)
    }
    return found
  }

  private func resolved(_ object: Object) throws -> Object {
    guard let reference = object["$ref"] as? String else { return object }
    let path = reference.split(separator: "/").dropFirst().map(String.init)
    return try resolved(try #require(try member(of: document, path) as? Object))
  }

  private func member(of value: Any, _ path: [String]) throws -> Any {
    try path.reduce(value) { found, key in try #require((found as? Object)?[key], "\(path)") }
  }

  // MARK: Serving

  /// The program contains the file of this source tree, not of an earlier build.
  @Test func servedDocumentEqualsRepositoryFile() throws {
    let file = packageRoot.appendingPathComponent("Proto/openapi.yaml")
    #expect(try Data(contentsOf: file) == Data(EmbeddedFile.apiDocument.plain.body.readableBytesView))
  }

  @Test func documentIsServedWithoutToken() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let path = "/v1/openapi.yaml"
      let response = try await client.get(path, token: nil)
      #expect(response.status == 200 && response.contentType == "application/yaml")
      #expect(response.body == String(buffer: EmbeddedFile.apiDocument.plain.body))
      let tag = try #require(response.headers["etag"])
      #expect(tag == EmbeddedFile.apiDocument.plain.tag && tag.wholeMatch(of: /"[0-9a-f]{1,16}"/) != nil)
      // The route ignores tokens, so an invalid one is accepted.
      #expect(try await client.get(path, token: "nonsense").status == 200)
      let head = try await client.request(.head, path, nil, token: nil)
      #expect(head.status == 200 && head.body.isEmpty && head.headers["etag"] == tag)
      #expect(head.headers["content-length"] == "\(EmbeddedFile.apiDocument.plain.body.readableBytes)")
      #expect(try await client.post(path, nil, token: nil).status == 405)
    }
  }

  @Test(arguments: [
    (#""x""#, false), ("", false), ("*", true), ("tag", true), ("W/tag", true), (#""x", tag"#, true),
    (#""x" ,  W/tag  "#, true), ("tagtag", false),
  ])
  func ifNoneMatchIsComparedWithTag(header: String, isMatch: Bool) {
    let bytes = Array(header.replacingOccurrences(of: "tag", with: EmbeddedFile.apiDocument.plain.tag).utf8)
    #expect(EmbeddedFile.apiDocument.plain.isAmong(bytes.span.bytes) == isMatch)
  }
}

extension Route {
  /// Whether it answers 501 if the gateway was started without `--ticket-secret-file`.
  fileprivate var needsTicketSecret: Bool {
    self == .issueTickets || self == .acknowledgePushes || self == .receiveHook
  }
}
