import ArgumentParser
import ClusterControl
import CommandOutput
import CommandSupport
import NIOCore
import Operations
import StoreEngine
import StoreEtcd
import TLSSession

/// Command `tidemark cluster`.
struct ClusterCommands: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "cluster",
    abstract: "Shows and changes which nodes of a cluster keep and own which groups of shards (preview).",
    discussion: """
      The commands read and write the sets of groups in etcd; the nodes do the rest. Run them wherever etcd can be \
      reached. They can be interrupted and run again at any time.

      Example: tidemark cluster status --cluster demo --log http://127.0.0.1:2379
      """,
    subcommands: [
      ClusterStatusCommand.self, ClusterMoveCommand.self, ClusterDrainCommand.self, ClusterBalanceCommand.self,
      ClusterAddCommand.self, ClusterRemoveCommand.self, ClusterRaiseCommand.self,
    ]
  )
}

/// Name of a cluster and servers of etcd, as for nodes.
struct ClusterOptions: ParsableArguments {
  /// Longer than the limits of nodes, which have to turn to the next server soon.
  private static let callTimeoutSeconds: Int64 = 3

  @Option(help: ArgumentHelp("The cluster's name, as its nodes have it.", valueName: "name"))
  var cluster: String
  @Option(
    help: ArgumentHelp(
      "Servers of etcd, such as https://e1:2379,https://e2:2379. http:// only for servers on this machine.",
      valueName: "url"
    )
  )
  var log: [CommaList<String>]
  @Option(help: ArgumentHelp("Client certificate for etcd, PEM.", valueName: "file"))
  var logCert: String?
  @Option(help: ArgumentHelp("Private key of --log-cert, PEM.", valueName: "file"))
  var logKey: String?
  @Option(help: ArgumentHelp("CA of etcd's certificates, PEM.", valueName: "file"))
  var logCa: String?

  var control: ClusterControl {
    get throws {
      var configuration = try EtcdConfiguration(
        cluster: cluster,
        urls: log.joined(),
        files: TLSClientConfiguration(
          authorityFile: logCa,
          certificateChainFile: logCert,
          privateKeyFile: logKey
        )
      )
      configuration.callTimeout = .seconds(Self.callTimeoutSeconds)
      configuration.connectTimeout = .seconds(Self.callTimeoutSeconds)
      return ClusterControl(configuration)
    }
  }

  /// Run a command with a progress line, and print its summary.
  func run(_ command: ClusterCommand, waitsForOwners: Bool = true) async throws {
    try await reportingErrors("tidemark cluster \(command.name)") {
      var control = try control
      control.waitsForOwners = waitsForOwners
      let summary = try await withProgress { [control] in try await control.run(command, note: $0) }
      Terminal.print(summary.document)
    }
  }
}

/// Number of a node as an argument.
private let node = parsing("the number of a node, 1 to \(NodeID.numberMax)") { text in
  UInt16(text).flatMap { (1...NodeID.numberMax).contains(Int($0)) ? NodeID($0) : nil }
}

/// Command `tidemark cluster status`.
struct ClusterStatusCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "status",
    abstract: "Shows the nodes, the groups with their owners and members, and what needs attention.",
    discussion: """
      With --json, one line: {"cluster","shards","level","next_level","nodes":[{"node","address","version","level_min",\
      "level_max","running","groups_owned","groups_preferred","groups_member"}],"groups":[{"group","first_shard",\
      "shards","owner","epoch","first_record",\
      "last_record","records","set_revision","members":[{"node","state","position","lag"}]}],\
      "warnings":[{"group","code","text"}]}. What is unknown is null. state is owner, following, joining, leaving, \
      behind (needs a snapshot), lacks_key (lacks the newest record key) or no_report, by the member's last report, \
      also if its node does not run. code is no_owner, owner_not_running, few_copies, member_not_running, \
      level_unsupported, unusual_size or not_preferred. Warnings leave the exit code 0. next_level is what tidemark \
      cluster raise would give the cluster.

      Example: tidemark cluster status --cluster demo --log http://127.0.0.1:2379 --json
      """
  )

  @OptionGroup var options: ClusterOptions
  @Flag(help: "Print one line of JSON.")
  var json = false

  func run() async throws {
    try await reportingErrors("tidemark cluster status") {
      let control = try options.control
      let status = try await withProgress { try await control.status(note: $0) }
      Terminal.print(json ? status.document : status.text)
    }
  }
}

/// Command `tidemark cluster move`.
struct ClusterMoveCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "move",
    abstract: "Makes a member the preferred owner of a group.",
    discussion: """
      The group moves without errors for clients when the node has followed steadily for 10 s. The command waits for \
      that, for 60 s at most, and then says what is missing. Its last line on standard output is \
      {"cluster","command","changes":[{"group","members"}]} as JSON.

      Example: tidemark cluster move 0 3 --cluster demo --log http://127.0.0.1:2379
      """
  )

  @OptionGroup var options: ClusterOptions
  @Flag(help: "Do not wait until the group has moved.")
  var noWait = false
  @Argument(
    help: ArgumentHelp("Number of the group.", valueName: "group"),
    transform: parsing("the number of a group, 0 to \(GroupID.countMax - 1)") { text in
      UInt8(text).flatMap { $0 < GroupID.countMax ? GroupID($0) : nil }
    }
  )
  var group: GroupID
  @Argument(help: ArgumentHelp("Number of the member.", valueName: "node"), transform: node)
  var member: NodeID

  func run() async throws { try await options.run(.move(group, to: member), waitsForOwners: !noWait) }
}

/// Command `tidemark cluster drain`.
struct ClusterDrainCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "drain",
    abstract: "Moves all groups away from a node, before maintenance. It stays a member.",
    discussion: """
      Each group whose preferred owner is the node, or cannot own it, moves to the member that is the preferred owner \
      of the fewest groups; the node's other groups move to their preferred owners. The command waits for that, for \
      60 s at most, and then says what is missing. tidemark cluster balance moves groups back. Its last line on \
      standard output is {"cluster","command","changes":[{"group","members"}]} as JSON.

      Example: tidemark cluster drain 2 --cluster demo --log http://127.0.0.1:2379
      """
  )

  @OptionGroup var options: ClusterOptions
  @Flag(help: "Do not wait until the groups have moved.")
  var noWait = false
  @Argument(help: ArgumentHelp("Number of the node.", valueName: "node"), transform: node)
  var drained: NodeID

  func run() async throws { try await options.run(.drain(drained), waitsForOwners: !noWait) }
}

/// Command `tidemark cluster balance`.
struct ClusterBalanceCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "balance",
    abstract: "Spreads the preferred owners of the groups evenly, with few changes.",
    discussion: """
      Only members that run and have all records of a group count. The groups move later, when their new owners have \
      followed steadily for 10 s: the command does not wait. Its last line on standard output is \
      {"cluster","command","changes":[{"group","members"}]} as JSON.

      Example: tidemark cluster balance --cluster demo --log http://127.0.0.1:2379
      """
  )

  @OptionGroup var options: ClusterOptions

  func run() async throws { try await options.run(.balance) }
}

/// Command `tidemark cluster add`.
struct ClusterAddCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "add",
    abstract: "Makes a running node a member of its share of the groups, or of all.",
    discussion: """
      Start the node first. It joins one group after the other: it becomes a member, receives the group's data from \
      another node, and then the member of the most groups leaves the group in its place. In the end the preferred \
      owners are balanced. With --members, sets with fewer members grow by the node instead, and nobody leaves them.

      With --all-groups the node becomes a member of every group, and nobody leaves. It owns a group only while no \
      other member can, until the preferred owners are balanced again. tidemark backup can then copy the cluster from \
      this node.

      An interrupted command continues when it is run again with the same options. Its last line on standard output is \
      {"cluster","command","changes":[{"group","members"}]} as JSON.

      Example: tidemark cluster add 4 --cluster demo --log http://127.0.0.1:2379
      """
  )

  @OptionGroup var options: ClusterOptions
  @Option(help: ArgumentHelp("Number of members that groups grow to. Default: as many as most have.", valueName: "n"))
  var members: Int?
  @Flag(help: "Add the node to all groups, as their last member.")
  var allGroups = false
  @Argument(help: ArgumentHelp("Number of the node.", valueName: "node"), transform: node)
  var added: NodeID

  func validate() throws {
    if allGroups, members != nil { throw ValidationError("--all-groups: leave --members out, all sets grow by one") }
    if let members { try validateRanges([("members", members, 1...GroupSet.membersMax)]) }
  }

  func run() async throws {
    try await options.run(allGroups ? .addToAll(added) : .add(added, members: members))
  }
}

/// Command `tidemark cluster remove`.
struct ClusterRemoveCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "remove",
    abstract: "Drops a node from all groups, also if it is lost.",
    discussion: """
      Where a node runs that is no member of a group yet, it takes the place: it becomes a member, receives the \
      group's data, and then the removed node is dropped. Otherwise the group goes on with fewer members, but at least \
      two members with all records stay, or one if it is the only one left. A removed node deletes its data of the \
      groups, and logs that for each group: stop the node only then, or it keeps the data. The command waits until \
      others own its groups, for 60 s at most, and then says what is missing.

      An interrupted command continues when it is run again. Its last line on standard output is \
      {"cluster","command","changes":[{"group","members"}]} as JSON.

      Example: tidemark cluster remove 2 --cluster demo --log http://127.0.0.1:2379
      """
  )

  @OptionGroup var options: ClusterOptions
  @Flag(help: "Do not wait until others own the groups.")
  var noWait = false
  @Argument(help: ArgumentHelp("Number of the node.", valueName: "node"), transform: node)
  var removed: NodeID

  func run() async throws { try await options.run(.remove(removed), waitsForOwners: !noWait) }
}

/// Command `tidemark cluster raise`.
struct ClusterRaiseCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "raise",
    abstract: "Raises the cluster's level after an upgrade of all nodes.",
    discussion: """
      The level is how nodes encode what they share. After an upgrade the nodes still write the old level, so that one \
      node after the other can be restarted, and can go back to the older tidemark-store. This command gives the \
      cluster the highest level that all nodes support. Older programs refuse to start from then on: the level never \
      falls. All members have to run. The last line on standard output is {"cluster","command","level"} as JSON.

      Example: tidemark cluster raise --cluster demo --log http://127.0.0.1:2379
      """
  )

  @OptionGroup var options: ClusterOptions

  func run() async throws { try await options.run(.raise) }
}
