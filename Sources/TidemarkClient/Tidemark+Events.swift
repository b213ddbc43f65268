import Foundation

extension Tidemark {
  /// Take an event of the stream; nil: one that this version cannot read.
  func apply(_ event: Event?) {
    guard !isClosed else { return }
    guard let event, event.type != "stream.reset" else {
      needsBasics = true
      return reloadAll()
    }
    if let totals = event.totals { return apply(totals) }
    if let receipt = event.receipt { return hub.emit(.receipt(receipt)) }
    guard let cid = event.cid, let place = event.place else { return }
    let channel = Place(cid: cid)
    let isOwn = event.user == user
    if event.type == "channel.deleted" || (isOwn && event.type == "member.removed") {
      return leave(channel, isDeleted: event.type == "channel.deleted")
    }
    if event.type == "notification.mark_unread", ownEpochs[place] == nil || ownEpochs[place] != event.row.unreadEpoch {
      // The answer to the own mark has told this epoch. Any other is another device's.
      unreadByHand.insert(place)
    }
    if isOwn, event.type == "member.added", wanted[channel] != nil, entries[channel] == nil {
      return need(.allRows, of: entry(channel))
    }
    if event.type == "notification.mark_read", place.thread != nil {
      // The counts are the channel's.
      if let entry = entries[place] { need(.ownRow, of: entry) }
      return deliver(event, to: entries[channel])
    }
    deliver(event, to: entries[place])
    if ["member.removed", "channel.truncated", "message.deleted"].contains(event.type) {
      passToThreads(event, of: cid)
    }
  }

  private func deliver(_ event: Event, to entry: PlaceEntry?) {
    guard let entry else { return }
    if entry.queries > 0 {
      if entry.waiting.count < PlaceEntry.waitingMax {
        entry.waiting.append(event)
      } else {
        entry.hasLostEvents = true
      }
      return
    }
    apply(event, to: entry)
    changed(entry)
    if event.type == "message.new" { readAutomatically() }
  }

  func apply(_ event: Event, to entry: PlaceEntry) { need(entry.state.apply(event, now: .now), of: entry) }

  /// Some of what happens to a channel happens to its threads.
  private func passToThreads(_ event: Event, of cid: CID) {
    let isApplied = ["member.removed", "channel.updated"].contains(event.type)
    guard isApplied || ["channel.truncated", "message.deleted"].contains(event.type) else { return }
    for (place, entry) in entries where place.cid == cid && place.thread != nil {
      if isApplied {
        deliver(event, to: entry)
      } else {
        need(.allRows, of: entry)
      }
    }
  }

  /// The channel is gone, for the user at least. Another one may have the name by now.
  private func leave(_ channel: Place, isDeleted: Bool) {
    for (place, entry) in entries where place.cid == channel.cid {
      entries[place] = nil
      changed(entry)
    }
    if isDeleted, wanted[channel] != nil { need(.allRows, of: entry(channel)) }
  }
}
