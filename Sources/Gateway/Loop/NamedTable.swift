internal import ReceiptModel

/// Values found by their name, or by the slot they keep until they are removed.
struct NamedTable<Value> {
  private var values = SlotTable<Value>()
  private var slots: [ExactText: UInt32] = [:]

  var count: Int { values.count }

  /// The slots in use, in order.
  var indexes: [UInt32] { values.indexes.map(\.slot) }

  func index(of name: String) -> UInt32? { slots[ExactText(name)] }

  subscript(index: UInt32) -> Value? {
    _read { yield values[slot: index] }
    _modify { yield &values[slot: index] }
  }

  mutating func insert(_ value: Value, named name: String) -> UInt32 {
    let slot = values.insert(value).slot
    slots[ExactText(name)] = slot
    return slot
  }

  mutating func remove(_ index: UInt32, named name: String) {
    values.remove(values.index(slot: index))
    slots[ExactText(name)] = nil
  }
}
