/// Deletion, truncation and erasure (R16).
extension NaiveModel {
  mutating func delete(_ cid: String, _ id: String) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    guard let (spot, place) = find(cid, id) else { return .refused("message_not_found") }
    self[spot].messages[place].isDeleted = true
    return .position(place + 1)
  }

  /// Delete the messages before one, or all, one by one.
  mutating func truncate(_ cid: String, _ before: String) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    var count = channels[cid]!.main.messages.count
    if !before.isEmpty {
      guard let place = channels[cid]!.main.places[before] else { return .refused("message_not_found") }
      count = place
    }
    for place in 0..<count { channels[cid]!.main.messages[place].isDeleted = true }
    return .channel(isNew: false, members: memberCount(cid), newest: channels[cid]!.main.messages.count)
  }

  /// Remove every trace of a user's id in one channel and its threads.
  mutating func eraseMember(_ cid: String, _ user: String) -> Outcome {
    guard channels[cid] != nil, knows(cid, user) else { return .done(false) }
    for spot in spots(cid) {
      let rows = Set(self[spot].memberships.indices.filter { self[spot].memberships[$0].user == user })
      for row in rows {
        self[spot].memberships[row].user = ""
        self[spot].memberships[row].role = ""
        self[spot].memberships[row].hasLeft = true
      }
      for place in self[spot].messages.indices {
        if self[spot].messages[place].sender == user { self[spot].messages[place].sender = "" }
        for number in self[spot].messages[place].acknowledgements.indices
        where rows.contains(self[spot].messages[place].acknowledgements[number].membership) {
          self[spot].messages[place].acknowledgements[number].isForgotten = true
        }
      }
    }
    return .done(true)
  }

  /// Whether a user's id occurs in a channel: as a member, a former member or a sender.
  func knows(_ cid: String, _ user: String) -> Bool {
    spots(cid).contains { spot in
      self[spot].memberships.contains { $0.user == user }
        || self[spot].messages.contains { $0.sender == user }
    }
  }

  // MARK: Erasing a user

  /// Whether the user is being erased: then nothing new is created in their name.
  func isErasing(_ user: String) -> Bool { users[user]?.isErasing ?? false }

  mutating func eraseUser(_ user: String) -> Outcome {
    if !isErasing(user) {
      var record = settings(of: user)
      record.version += 1
      record.isErasing = true
      record.isErased = false
      keep(record)
    }
    return .user(settings(of: user))
  }

  /// End the erasure.
  mutating func assignErased(_ user: String, _ version: Int) -> Outcome {
    if version > settings(of: user).version {
      evictErasedRecord(user)
      users[user] = nil
      erased[user] = (version, now)
    }
    return .user(settings(of: user))
  }

  mutating func keep(_ record: UserView) {
    evictErasedRecord(record.user)
    erased[record.user] = nil
    users[record.user] = record
  }

  /// Evict the record of a user erased more than a day ago when another user needs the place. The oldest goes first;
  /// of several equally old, the one with the lowest place.
  private mutating func evictErasedRecord(_ user: String) {
    guard places[user] == nil else { return }
    let oldest = erased.min { ($0.value.at, places[$0.key]!) < ($1.value.at, places[$1.key]!) }
    guard let oldest, now - oldest.value.at >= 86_400_000 else {
      places[user] = places.count
      return
    }
    erased[oldest.key] = nil
    places[user] = places.removeValue(forKey: oldest.key)
  }
}
