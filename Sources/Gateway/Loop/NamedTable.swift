internal import ReceiptModel

/// Values found by their name, or by the slot they keep until they are removed.
struct NamedTable<Value> {
  /// The slot of a value.
  struct Index: Hashable, Comparable, BitwiseCopyable {
    let slot: UInt32

    static func < (one: Index, other: Index) -> Bool { one.slot < other.slot }
  }

  private var values = SlotTable<Value>()
  private var indexesByName: [ExactText: Index] = [:]

  var count: Int { values.count }

  /// The indexes in use, in order.
  var indexes: [Index] { values.indexes.map { Index(slot: $0.slot) } }

  func index(of name: String) -> Index? { indexesByName[ExactText(name)] }

  subscript(index: Index) -> Value? {
    _read { yield values[slot: index.slot] }
    _modify { yield &values[slot: index.slot] }
  }

  mutating func insert(_ value: Value, named name: String) -> Index {
    let index = Index(slot: values.insert(value).slot)
    indexesByName[ExactText(name)] = index
    return index
  }

  mutating func remove(_ index: Index, named name: String) {
    values.remove(values.index(slot: index.slot))
    indexesByName[ExactText(name)] = nil
  }
}
