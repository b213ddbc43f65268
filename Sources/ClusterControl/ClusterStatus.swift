internal import CommandOutput
package import StoreEngine

/// What `tidemark cluster status` shows.
package struct ClusterStatus: Hashable, Sendable {
  package struct Node: Hashable, Sendable {
    package var node: NodeID
    /// Nil: the node does not run.
    package var address: String?
    package var version: String?
    /// The levels that it supports.
    package var levels: ClosedRange<ClusterLevel>?
    package var groupsOwned: Int
    package var groupsPreferred: Int
    package var groupsMember: Int
  }

  package struct Member: Hashable, Sendable {
    package enum State: String, Sendable {
      case owner, following, joining, leaving
      /// It lacks records that are trimmed, or all: it needs a snapshot.
      case behind
      /// It lacks the newest record key, as for a second after each change of owner.
      case lacksKey = "lacks_key"
      case noReport = "no_report"
    }

    package var node: NodeID
    package var state: State
    /// The last record that it has synced.
    package var position: UInt64?
    package var lag: UInt64?
  }

  package struct Group: Hashable, Sendable {
    package var group: GroupID
    package var shards: Range<Int>
    package var owner: NodeID?
    package var epoch: UInt64
    package var firstRecord: UInt64
    package var lastRecord: UInt64
    package var setRevision: UInt64
    /// In the order of their ranks.
    package var members: [Member]

    /// Number of records in the log.
    package var records: UInt64 { lastRecord < firstRecord ? 0 : lastRecord - firstRecord + 1 }
  }

  /// Something that needs an operator's attention.
  package struct Warning: Hashable, Sendable {
    package enum Code: String, Sendable {
      case noOwner = "no_owner"
      case ownerNotRunning = "owner_not_running"
      case fewCopies = "few_copies"
      case unusualSize = "unusual_size"
      case notPreferred = "not_preferred"
      case memberNotRunning = "member_not_running"
      case levelUnsupported = "level_unsupported"
    }

    package var group: GroupID
    package var code: Code
    package var text: String
  }

  package var cluster: String
  package var shardCount: Int
  package var level: ClusterLevel
  /// The level that `tidemark cluster raise` would give the cluster; nil: none, or it would be refused.
  package var nextLevel: ClusterLevel?
  /// Nodes that run, own a group, or are members.
  package var nodes: [Node]
  package var groups: [Group]
  package var warnings: [Warning]

  package init(cluster: String, _ state: ClusterState) {
    self.cluster = cluster
    shardCount = state.configuration.shardCount
    level = state.configuration.level
    if case .raise(let next)? = try? ClusterCommand.raise.nextStep(state) { nextLevel = next }
    groups = state.groups.map { Group($0, shards: state.configuration.shards(of: $0.id)) }
    let (memberships, preferences) = (state.memberships, state.preferences)
    let owners = state.groups.map(\.owner).filter { $0 != .none }
    nodes = Set(memberships.keys).union(state.nodes.map(\.node)).union(owners).sorted().map { node in
      let announcement = state.nodes.first { $0.node == node }
      return Node(
        node: node,
        address: announcement.map { Self.address($0) },
        version: announcement?.version,
        levels: announcement?.levels,
        groupsOwned: owners.count { $0 == node },
        groupsPreferred: preferences[node, default: 0],
        groupsMember: memberships[node, default: 0]
      )
    }
    let size = state.commonSize
    warnings = state.groups.flatMap { Warning.all(of: $0, in: state, commonSize: size) }
  }

  private static func address(_ node: NodeAnnouncement) -> String {
    node.host.contains(":") ? "[\(node.host)]:\(node.port)" : "\(node.host):\(node.port)"
  }
}

extension ClusterStatus.Group {
  fileprivate init(_ group: GroupState, shards: Range<Int>) {
    self.group = group.id
    self.shards = shards
    owner = group.owner == .none ? nil : group.owner
    epoch = group.end.owner.epoch.rawValue
    firstRecord = group.end.first.rawValue
    lastRecord = group.end.last.rawValue
    setRevision = group.set.revision
    members = group.members.map { ClusterStatus.Member($0, in: group) }
  }
}

extension ClusterStatus.Member {
  fileprivate init(_ node: NodeID, in group: GroupState) {
    self.node = node
    let report = group.reports[node]
    position = report?.position.rawValue
    lag = group.lag(of: node)
    state =
      if node == group.owner {
        .owner
      } else {
        switch report?.phase {
        case nil: .noReport
        case .joining: .joining
        case .following where group.hasLog(node): .following
        case .ineligible where group.hasLog(node): .leaving
        case .following, .ineligible: group.lacksOnlyKey(node) ? .lacksKey : .behind
        }
      }
  }
}

extension ClusterStatus.Warning {
  fileprivate static func all(of group: GroupState, in state: ClusterState, commonSize: Int) -> [Self] {
    var warnings: [Self] = []
    func warn(_ code: Code, _ text: String) { warnings.append(Self(group: group.id, code: code, text: text)) }
    let copies = group.members.count { state.isRunning($0) && group.hasLog($0) }
    if group.owner == .none {
      warn(.noOwner, "has no owner")
    } else if !state.isRunning(group.owner) {
      warn(.ownerNotRunning, "is owned by node \(group.owner.rawValue), which does not run, until a member claims it")
    }
    if copies < 2 { warn(.fewCopies, "has \(copies == 0 ? "no" : "one") running member with all its records") }
    let absent = group.members.filter { !state.isRunning($0) }
    if !absent.isEmpty {
      let what = absent.count == 1 ? "a member that does" : "members that do"
      warn(.memberNotRunning, "has \(what) not run: \(absent.text)")
    }
    let unsupporting = state.nodes.filter {
      group.members.contains($0.node) && !$0.levels.contains(state.configuration.level)
    }
    if !unsupporting.isEmpty {
      warn(.levelUnsupported, "has members that do not support the cluster's level: \(unsupporting.map(\.node).text)")
    }
    if group.members.count != commonSize {
      warn(.unusualSize, "has \(group.members.count) members, most groups have \(commonSize)")
    }
    if group.owner != .none, group.owner != group.members[0] {
      warn(
        .notPreferred,
        "is owned by node \(group.owner.rawValue), not by its preferred owner, node \(group.members[0].rawValue)"
      )
    }
    return warnings
  }
}

extension ClusterStatus {
  /// The status as one line of JSON.
  package var document: String {
    OrderedJSON.object([
      ("cluster", .string(cluster)), ("shards", .integer(shardCount)), ("level", .integer(Int(level.rawValue))),
      ("next_level", .number(nextLevel.map { UInt64($0.rawValue) })), ("nodes", .array(nodes.map(\.json))),
      ("groups", .array(groups.map(\.json))), ("warnings", .array(warnings.map(\.json))),
    ]).text
  }
}

extension OrderedJSON {
  fileprivate static func number(_ number: UInt64?) -> OrderedJSON {
    number.map { .integer(Int(clamping: $0)) } ?? .null
  }

  fileprivate static func text(_ text: String?) -> OrderedJSON { text.map { .string($0) } ?? .null }
}

extension ClusterStatus.Node {
  fileprivate var json: OrderedJSON {
    .object([
      ("node", .integer(Int(node.rawValue))), ("address", .text(address)), ("version", .text(version)),
      ("level_min", .number(levels.map { UInt64($0.lowerBound.rawValue) })),
      ("level_max", .number(levels.map { UInt64($0.upperBound.rawValue) })),
      ("running", .boolean(address != nil)), ("groups_owned", .integer(groupsOwned)),
      ("groups_preferred", .integer(groupsPreferred)), ("groups_member", .integer(groupsMember)),
    ])
  }
}

extension ClusterStatus.Group {
  fileprivate var json: OrderedJSON {
    .object([
      ("group", .integer(Int(group.rawValue))), ("first_shard", .integer(shards.lowerBound)),
      ("shards", .integer(shards.count)), ("owner", .number(owner.map { UInt64($0.rawValue) })),
      ("epoch", .number(epoch)), ("first_record", .number(firstRecord)), ("last_record", .number(lastRecord)),
      ("records", .number(records)), ("set_revision", .number(setRevision)),
      ("members", .array(members.map(\.json))),
    ])
  }
}

extension ClusterStatus.Member {
  fileprivate var json: OrderedJSON {
    .object([
      ("node", .integer(Int(node.rawValue))), ("state", .string(state.rawValue)), ("position", .number(position)),
      ("lag", .number(lag)),
    ])
  }
}

extension ClusterStatus.Warning {
  fileprivate var json: OrderedJSON {
    .object([
      ("group", .integer(Int(group.rawValue))), ("code", .string(code.rawValue)),
      ("text", .string("group \(group.rawValue) \(text)")),
    ])
  }
}
