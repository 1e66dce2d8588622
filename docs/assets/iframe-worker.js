// Browsers start no worker for a page that was opened from disk. The search then runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      const inside = frame.contentWindow
      this.send = (data) => inside.dispatchEvent(new MessageEvent("message", { data }))
      inside.IFrameWorker = window.IFrameWorker
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        this.onmessage?.(event)
      }
      const load = (src) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script")
          Object.assign(script, { src, onload: done, onerror: failed })
          inside.document.body.append(script)
        })
      inside.importScripts = async (...urls) => {
        for (const one of urls) await load(one)
      }
      this.ready = load(new URL(url, location).href)
    }
    postMessage(data) {
      this.ready.then(() => this.send(data))
    }
  }
  window.Worker = window.IFrameWorker
}
