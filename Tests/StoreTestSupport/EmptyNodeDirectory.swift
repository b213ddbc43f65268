package import StoreEngine

/// A directory in which no node is announced.
package final class EmptyNodeDirectory: NodeDirectory {
  package init() {}
  package func announce(_ node: NodeAnnouncement, changed: @escaping ([NodeAnnouncement]) -> Void) { changed([]) }
  package func withdraw(done: @escaping () -> Void) { done() }
}
