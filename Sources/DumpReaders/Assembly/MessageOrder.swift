/// The messages of one channel, in the order of their lines: those of the channel, and those of each thread.
struct MessageOrder {
  private(set) var messages: [DumpMessage] = []
  /// Ids of the lines, as `messages`.
  private(set) var ids: [String] = []
  /// Indexes of the channel's own messages, by time.
  private(set) var roots: [Int] = []
  /// Indexes of the replies of each thread, by time; keys are those of the threads' first messages.
  private(set) var replies: [ExactID: [Int]] = [:]
  private var indexes: [ExactID: Int] = [:]
  /// The place of each message in `roots`, or in its thread's replies.
  private var ranks: [Int] = []

  init(_ given: [DumpMessage], deletions: [DumpDeletion], _ leftOut: inout LeftOutCounts) {
    for message in given {
      // Pages of a product's API may overlap. The later one has the message as it is now.
      let key = ExactID(message.key)
      if let known = indexes[key] {
        messages[known] = message
        leftOut.add("repeated messages")
      } else {
        indexes[key] = messages.count
        messages.append(message)
      }
    }
    for deletion in deletions {
      guard let index = indexes[ExactID(deletion.message)] else {
        leftOut.add("deletions of messages that are not in the dump")
        continue
      }
      messages[index].isDeleted = true
      messages[index].deletedAt = messages[index].deletedAt ?? deletion.at
    }
    name()
    sort()
  }

  /// Return the index of a message by its key.
  func index(of key: String) -> Int? { indexes[ExactID(key)] }

  /// Return the id of a message by its key, also of one that is not in the dump.
  func id(of key: String) -> String { indexes[ExactID(key)].map { ids[$0] } ?? key }

  /// Keys of all threads with replies, in the order of the threads' first messages in the dump.
  var threads: [String] {
    replies.keys.sorted { (indexes[$0] ?? .max, $0) < (indexes[$1] ?? .max, $1) }.map(\.text)
  }

  /// Return the history of a thread, or with nil of the channel, as indexes.
  func history(_ thread: String?) -> [Int] { thread.map { replies[ExactID($0)] ?? [] } ?? roots }

  /// Return the place of a message in a history; nil if it belongs to another one.
  func rank(of index: Int, in thread: String?) -> Int? {
    messages[index].parent.map(ExactID.init) == thread.map(ExactID.init) ? ranks[index] : nil
  }

  /// Return the place of a history's last message up to a time; nil if there is none.
  func lastRank(upTo time: DumpTime, in thread: String?) -> Int? {
    let history = history(thread)
    var (low, high) = (0, history.count)
    while low < high {
      let middle = (low + high) / 2
      if messages[history[middle]].createdAt <= time { low = middle + 1 } else { high = middle }
    }
    return low > 0 ? low - 1 : nil
  }

  private mutating func name() {
    var counts: [ExactID: Int] = [:]
    ids = messages.map { message in
      guard let stem = message.stem else { return message.key }
      let count = counts[ExactID(stem), default: 0] + 1
      counts[ExactID(stem)] = count
      return count == 1 ? stem : "\(stem):\(count)"
    }
  }

  /// Messages of the same time keep the order of the dump.
  private mutating func sort() {
    let inOrder = messages.indices.sorted { (messages[$0].createdAt, $0) < (messages[$1].createdAt, $1) }
    ranks = Array(repeating: 0, count: messages.count)
    for index in inOrder {
      if let parent = messages[index].parent.map(ExactID.init) {
        ranks[index] = replies[parent]?.count ?? 0
        replies[parent, default: []].append(index)
      } else {
        ranks[index] = roots.count
        roots.append(index)
      }
    }
  }
}
