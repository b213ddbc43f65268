internal import StoreEngine

/// The status as tables.
extension ClusterStatus {
  package var text: String {
    let running = nodes.count { $0.address != nil }
    let shape = "\(shardCount) shards in \(groups.count) groups, \(running) nodes running"
    let head = "cluster \(cluster): \(shape), level \(level.rawValue)"
    let raise = nextLevel.map { level in
      ["", "all running nodes support level \(level.rawValue): tidemark cluster raise (then no node can go back)"]
    }
    let warnings = warnings.map { "warning: group \($0.group.rawValue) \($0.text)" }
    let tables = [head, "", nodeTable, "", groupTable]
    return (tables + (raise ?? []) + (warnings.isEmpty ? [] : [""]) + warnings).joined(separator: "\n")
  }

  private var nodeTable: String {
    Self.table(
      [["NODE", "ADDRESS", "VERSION", "LEVELS", "STATE", "OWNS", "PREFERRED", "MEMBER OF"]]
        + nodes.map { node in
          [
            "\(node.node.rawValue)", node.address ?? "-", node.version ?? "-", node.levels?.text ?? "-",
            node.address == nil ? "not running" : "running", "\(node.groupsOwned)", "\(node.groupsPreferred)",
            "\(node.groupsMember)",
          ]
        }
    )
  }

  private var groupTable: String {
    let running = Set(nodes.filter { $0.address != nil }.map(\.node))
    return Self.table(
      [["GROUP", "SHARDS", "OWNER", "EPOCH", "RECORDS", "MEMBERS"]]
        + groups.map { group in
          [
            "\(group.group.rawValue)", group.shardText, group.owner.map { "\($0.rawValue)" } ?? "-",
            "\(group.epoch)", "\(group.records)",
            group.members.map { $0.text(isRunning: running.contains($0.node)) }.joined(separator: ", "),
          ]
        }
    )
  }

  /// Columns as wide as their longest cell, separated by two spaces.
  private static func table(_ rows: [[String]]) -> String {
    let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
    return rows.map { row in
      var line = ""
      for (index, cell) in row.enumerated() {
        line += cell
        if index < row.count - 1 { line += String(repeating: " ", count: widths[index] - cell.count + 2) }
      }
      return line
    }.joined(separator: "\n")
  }
}

extension ClusterStatus.Group {
  fileprivate var shardText: String {
    shards.count == 1 ? "\(shards.lowerBound)" : "\(shards.lowerBound)-\(shards.upperBound - 1)"
  }
}

extension ClusterStatus.Member {
  fileprivate func text(isRunning: Bool) -> String {
    switch state {
    case .owner: "\(node.rawValue) owner\(isRunning ? "" : ", not running")"
    case .following, .leaving, .joining:
      "\(node.rawValue) \(isRunning ? state.rawValue : "not running") (lag \(lag ?? 0))"
    case .lacksKey: "\(node.rawValue) \(isRunning ? "waits for a record key" : "not running") (lag \(lag ?? 0))"
    case .behind: "\(node.rawValue) needs a snapshot"
    case .noReport: "\(node.rawValue) no report"
    }
  }
}
