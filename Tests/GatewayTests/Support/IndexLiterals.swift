@testable import Gateway

// Tests write indexes of tables as numbers.

extension ConnectionIndex: ExpressibleByIntegerLiteral {
  /// A connection by its number.
  public init(integerLiteral number: UInt32) { self.init(number) }
}

extension NamedTable.Index: ExpressibleByIntegerLiteral {
  init(integerLiteral slot: UInt32) { self.init(slot: slot) }
}
