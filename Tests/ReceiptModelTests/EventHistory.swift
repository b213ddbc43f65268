@testable import ReceiptModel

/// One history that is watched: random commands, and after each group of them the picture that events have made of
/// every channel is held against what the queries answer.
struct EventHistory {
  /// How watchers are told.
  enum Way {
    /// As it happens.
    case live
    /// After gaps, by what has changed since.
    case resuming
  }

  let seed: UInt64
  let way: Way
  /// Takes events away, to see that they are missed.
  var drops: (ChannelEvent) -> ChannelEvent? = { $0 }
  private let world: ShardWorld
  private var model = NaiveModel()
  private var generator: CommandGenerator
  private var random: SplitMix64
  private var step = 0
  private var pictures: [String: EventPicture] = [:]
  private var told: Timestamp = .none
  /// How often each kind was told, and how often a resume was refused.
  private(set) var tally: [String: Int] = [:]

  init(seed: UInt64, _ way: Way) {
    self.seed = seed
    self.way = way
    generator = CommandGenerator(seed: seed)
    world = ShardWorld(shards: generator.shape.shards)
    if way == .live { for shard in world.shards { shard.watch() } }
    random = SplitMix64(seed: seed &* 0x2545_F491_4F6C_DD1D &+ 1)
  }

  mutating func run(steps: Int) throws(HistoryFault) {
    while step < steps {
      var group: [Command] = []
      for _ in 0..<(random.oneIn(3) ? 1 : 1 + random.below(way == .live ? 8 : 40)) {
        step += 1
        let command = generator.next(model)
        let clock = generator.tick()
        _ = world.perform(command, clock: clock)
        _ = world.takeForgotten()
        _ = model.perform(command, clock: clock)
        group.append(command)
        if way == .resuming {
          for name in world.upkeep(&random).keys { tally[name, default: 0] += 1 }
        }
      }
      for cid in generator.cids {
        if let text = look(cid) {
          throw HistoryFault(
            seed: seed,
            step: step,
            text: "\(way), \(cid), after \(group): \(text)"
          )
        }
      }
      told = world.shards[0].state.time
      if let text = world.faults.first { throw HistoryFault(seed: seed, step: step, text: text) }
    }
  }

  /// Takes what is told of a channel, and asks.
  private mutating func look(_ cid: String) -> String? {
    let shard = world.shard(of: cid)
    guard let slot = shard.slot(cid) else {
      pictures[cid] = nil
      return nil
    }
    if pictures[cid]?.number != shard.state[slot].number {
      pictures[cid] = EventPicture(shard.state, slot, resumes: way == .resuming)
    }
    var events: [ChannelEvent]?
    switch way {
    case .live: events = shard.takeEvents(slot)
    case .resuming:
      var left = Int.max
      events = shard.state.events(in: slot, since: told, limit: .max, statusesMax: .max, left: &left)
      if events == nil {
        tally["refused", default: 0] += 1
        pictures[cid] = EventPicture(asking: &shard.state, slot)
      }
    }
    for event in events ?? [] {
      guard let event = drops(event) else { continue }
      tally[event.name, default: 0] += 1
      pictures[cid]!.apply(event, shard.state, slot)
    }
    return pictures[cid]!.fault(&shard.state, slot)
  }
}

extension ChannelEvent {
  /// For a tally.
  var name: String { "\(self)".prefix { $0 != "(" }.description }
}
