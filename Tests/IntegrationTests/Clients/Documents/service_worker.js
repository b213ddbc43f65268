// Delivers a push to the documented worker without a push service, and reports the result.
let told = Promise.resolve()
const report = (what, data = '') => {
  told = told.then(() => fetch('/report', { method: 'POST', body: JSON.stringify({ what, data }) }))
  return told
}
// The page has no permission to show notifications, so this reports them.
self.registration.showNotification = (title, options) => report('shown', JSON.stringify({ title, ...options }))
importScripts('/push.js')

self.addEventListener('message', message => {
  const push = new PushEvent('push', { data: message.data })
  let work
  // Only the browser's own events keep a worker alive, so this keeps the promise for `message`.
  push.waitUntil = promise => { work = promise }
  self.dispatchEvent(push)
  message.waitUntil(work.then(() => report('done'), error => report('broken', String(error))))
})
