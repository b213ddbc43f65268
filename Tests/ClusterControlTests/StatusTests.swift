import StoreEngine
import Testing

@testable import ClusterControl

@Suite struct StatusTests {
  private static var cluster: TestCluster {
    var cluster = TestCluster([[1, 2, 3], [2, 3, 1], [3, 1, 2, 4]], running: [1, 2, 4])
    cluster.report(2, 0, at: 7)
    cluster.report(3, 0, at: 2)
    cluster.report(1, 1, at: 9, .ineligible)
    cluster.owners[1] = 0
    for node in [1, 3] as [UInt16] { cluster.reports[2][node] = nil }
    cluster.report(4, 2, at: 8, .joining)
    cluster.owners[2] = 2
    cluster.levels[2] = 2...3
    return cluster
  }

  @Test func tablesNameEachNodeAndGroup() {
    let status = ClusterStatus(cluster: "demo", Self.cluster.state)
    #expect(
      status.text == """
        cluster demo: 64 shards in 3 groups, 3 nodes running, level 2

        NODE  ADDRESS        VERSION  LEVELS  STATE        OWNS  PREFERRED  MEMBER OF
        1     10.0.0.1:7410  0.9.0    2       running      1     1          3
        2     10.0.0.2:7410  0.9.0    2 to 3  running      1     1          3
        3     -              -        -       not running  0     1          3
        4     10.0.0.4:7410  0.9.0    2       running      0     0          1

        GROUP  SHARDS  OWNER  EPOCH  RECORDS  MEMBERS
        0      0-21    1      2      5        1 owner, 2 following (lag 2), 3 needs a snapshot
        1      22-42   -      0      5        2 following (lag 0), 3 not running (lag 0), 1 leaving (lag 0)
        2      43-63   2      2      5        3 no report, 1 no report, 2 owner, 4 joining (lag 1)

        warning: group 0 has a member that does not run: 3
        warning: group 1 has no owner
        warning: group 1 has a member that does not run: 3
        warning: group 2 has one running member with all its records
        warning: group 2 has a member that does not run: 3
        warning: group 2 has 4 members, most groups have 3
        warning: group 2 is owned by node 2, not by its preferred owner, node 3
        """
    )
  }

  @Test func documentHasTheSame() {
    var cluster = Self.cluster
    cluster.sets.removeFirst(2)
    cluster.owners.removeFirst(2)
    cluster.reports.removeFirst(2)
    cluster.running = [2]
    #expect(
      ClusterStatus(cluster: "demo", cluster.state).document == """
        {"cluster":"demo","shards":64,"level":2,"next_level":null,"nodes":[\
        {"node":1,"address":null,"version":null,"level_min":null,"level_max":null,"running":false,\
        "groups_owned":0,"groups_preferred":0,"groups_member":1},\
        {"node":2,"address":"10.0.0.2:7410","version":"0.9.0","level_min":2,"level_max":3,"running":true,\
        "groups_owned":1,"groups_preferred":0,"groups_member":1},\
        {"node":3,"address":null,"version":null,"level_min":null,"level_max":null,"running":false,\
        "groups_owned":0,"groups_preferred":1,"groups_member":1},\
        {"node":4,"address":null,"version":null,"level_min":null,"level_max":null,"running":false,\
        "groups_owned":0,"groups_preferred":0,"groups_member":1}],\
        "groups":[{"group":0,"first_shard":0,"shards":64,"owner":2,"epoch":2,"first_record":5,"last_record":9,\
        "records":5,"set_revision":0,"members":[\
        {"node":3,"state":"no_report","position":null,"lag":null},\
        {"node":1,"state":"no_report","position":null,"lag":null},\
        {"node":2,"state":"owner","position":9,"lag":0},\
        {"node":4,"state":"joining","position":8,"lag":1}]}],\
        "warnings":[\
        {"group":0,"code":"few_copies","text":"group 0 has one running member with all its records"},\
        {"group":0,"code":"member_not_running","text":"group 0 has members that do not run: 3, 1, 4"},\
        {"group":0,"code":"unusual_size","text":"group 0 has 4 members, most groups have 3"},\
        {"group":0,"code":"not_preferred",\
        "text":"group 0 is owned by node 2, not by its preferred owner, node 3"}]}
        """
    )
  }

  @Test func clusterWithoutFaultsHasNoWarnings() {
    let status = ClusterStatus(cluster: "demo", TestCluster.initial().state)
    #expect(status.warnings == [])
    #expect(status.text.hasSuffix("3 owner, 1 following (lag 0), 2 following (lag 0)"))
  }

  /// After a change of owner the others lack its key for a second.
  @Test func memberWithoutNewestKeyIsNamed() {
    var cluster = TestCluster.initial(groups: 1)
    cluster.reports[0][1]?.key = RecordKeyNumber(7)
    cluster.reports[0][2]?.key = RecordKeyNumber(7)
    let status = ClusterStatus(cluster: "demo", cluster.state)
    #expect(status.groups[0].members.map(\.state) == [.owner, .following, .lacksKey])
    #expect(status.text.hasSuffix("1 owner, 2 following (lag 0), 3 waits for a record key (lag 0)"))
  }

  @Test func levelThatAllNodesSupportIsNamed() {
    var cluster = TestCluster.initial()
    for node in 1...3 as ClosedRange<UInt16> { cluster.levels[node] = 2...4 }
    cluster.levels[3] = 2...3
    let status = ClusterStatus(cluster: "demo", cluster.state)
    #expect(
      status.text.hasSuffix(
        "\n\nall running nodes support level 3: tidemark cluster raise (then no node can go back)"
      )
    )
    cluster.level = 3
    #expect(ClusterStatus(cluster: "demo", cluster.state).nextLevel == nil)
  }
}
