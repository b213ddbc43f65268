/// Deletion, truncation and erasure (R16).
extension NaiveModel {
  mutating func delete(_ cid: String, _ id: String) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    guard let (roomID, place) = find(cid, id) else { return .refused("message_not_found") }
    self[roomID].messages[place].isDeleted = true
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
    for roomID in roomIDs(cid) {
      let rows = Set(self[roomID].memberships.indices.filter { self[roomID].memberships[$0].user == user })
      for row in rows {
        self[roomID].memberships[row].user = ""
        self[roomID].memberships[row].role = ""
        self[roomID].memberships[row].hasLeft = true
      }
      for place in self[roomID].messages.indices {
        if self[roomID].messages[place].sender == user { self[roomID].messages[place].sender = "" }
        for number in self[roomID].messages[place].acknowledgements.indices
        where rows.contains(self[roomID].messages[place].acknowledgements[number].membership) {
          self[roomID].messages[place].acknowledgements[number].isForgotten = true
        }
      }
    }
    return .done(true)
  }

  /// Whether a user's id occurs in a channel: as a member, a former member or a sender.
  func knows(_ cid: String, _ user: String) -> Bool {
    roomIDs(cid).contains { roomID in
      self[roomID].memberships.contains { $0.user == user }
        || self[roomID].messages.contains { $0.sender == user }
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
