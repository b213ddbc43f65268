/**
 * Why a member has not read a message: the facts that are stored, in the order in which they explain most. Each has a
 * `code`, for which words.js has the sentence, and the values of that sentence. `isKnown` is false where nothing that
 * is stored tells. What a member hides is not concluded from other facts.
 *
 * @param facts.isReply whether the message is a reply; undefined: not known
 * @param facts.markedFrom the first message that the member has marked unread, if they have; undefined: not known
 * @param facts.status  the message's status; its `seq` is the channel's, or the thread's of a reply
 * @param facts.member  the member's entry of the message's list of chosen members, or `{ code }`
 * @param facts.sender  the message's sender; undefined: not known
 * @param facts.row     the member's row of the read state, of the channel or the thread; undefined: none
 * @param facts.privacy the member's privacy settings
 */
export function reasons({ status, member, sender, row, privacy, isReply, markedFrom }) {
  const user = member.user.id
  if (member.code === 'member_not_found') return [{ code: 'not_a_member', isKnown: true, user }]
  if (sender === user) return [{ code: 'own_message', isKnown: true, user }]
  if (member.code === 'not_expected') {
    if (isReply) return [{ code: 'not_in_thread', isKnown: true, user }]
    if (isReply === undefined) return [{ code: 'not_expected_or_in_thread', isKnown: true, user }]
    return [{ code: 'not_expected', isKnown: true, user, seq: status.seq, joined: row?.joined_seq }]
  }
  if (member.code !== undefined) return [{ code: 'refused', isKnown: false, user, reason: member.code }]
  const found = []
  if (member.acknowledged_at !== undefined) {
    found.push({ code: 'acknowledged', isKnown: true, user, at: member.acknowledged_at })
  }
  if (!status.read_events) return [...found, { code: 'read_events_off', isKnown: false, user }]
  if (!privacy.read_receipts.enabled) return [...found, { code: 'hides_reads', isKnown: false, user }]
  if (member.status === 'read') {
    found.push({ code: 'read', isKnown: true, user, at: member.read_at, isExact: member.read_exact })
    if (markedFrom !== undefined) found.push({ code: 'marked_unread_after', isKnown: true, user, from: markedFrom })
    return found
  }
  if (markedFrom !== undefined) found.push({ code: 'marked_unread', isKnown: true, user, from: markedFrom })
  if (row && row.last_read_seq < status.seq) {
    const { last_read_seq: read, last_read_message_id: id, last_read: at } = row
    found.push({ code: 'not_reached', isKnown: true, user, seq: status.seq, read, id, at })
  }
  if (!status.delivery_events) return [...found, { code: 'delivery_events_off', isKnown: false, user }]
  if (!privacy.delivery_receipts.enabled) return [...found, { code: 'hides_deliveries', isKnown: false, user }]
  if (member.status === 'delivered') {
    found.push({ code: 'delivered', isKnown: true, user, at: member.delivered_at, isExact: member.delivered_exact })
    return [...found, { code: 'not_opened', isKnown: false, user }]
  }
  found.push({ code: 'not_delivered', isKnown: true, user, seq: status.seq, delivered: row?.last_delivered_seq })
  return [...found, { code: 'push_not_known', isKnown: false, user }]
}
