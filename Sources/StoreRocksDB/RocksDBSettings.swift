/// Settings for opening a data directory.
package struct RocksDBSettings: Hashable, Sendable {
  package var durability = Durability.sync
  /// Size of RocksDB's block cache for pages, in bytes.
  package var cacheBytes = 32 << 20
  /// Age at which overwritten and deleted values in page tables are compacted away (R16), in seconds: a day.
  package var oldValuesSecondsMax = 86_400

  package init() {}
}
