((clock,date,source,time,a,b,c,d,limit,check)=>{
const G=globalThis,keys=Object.keys,isArray=Array.isArray,text=JSON.stringify,Later=Promise,run=eval;
if(G.performance.timeOrigin>limit)throw"weir:rule_time";
let input;
const used=clock(date,time,a,b,c,d,()=>{try{return text(input)||""}catch{return""}});
G.console={log(){}};
const line=e=>{const at=/<input>:(\d+):/.exec(e.stack||"");return at?+at[1]:0};
const words=e=>{try{
if(e===null||typeof e!=="object")return String(e);
if(!("message"in e))return text(e);
const at=line(e);
return(e.name||"Error")+": "+e.message+(at?" (line "+at+")":"")
}catch{return"something that has no text"}};
// The engine keeps objects of more than 32 fields in no order: give them one.
const settle=v=>{
if(v===null||typeof v!=="object")return v;
if(isArray(v)){for(let i=0;i<v.length;i++)v[i]=settle(v[i]);return v}
const names=keys(v);
if(names.length<=32){for(const n of names)v[n]=settle(v[n]);return v}
const out={};
for(const n of names.sort())out[n]=settle(v[n]);
return out};
let handler,broken;
try{handler=run('"use strict";'+source+'\n;typeof handler==="undefined"?void 0:handler')}catch(e){broken={words:words(e),line:e instanceof SyntaxError?line(e):0}}
// The engine calls main; a source cannot put its own in its place.
Object.defineProperty(G,"main",{writable:false,configurable:false,value:i=>{
if(check)return text({output:{kind:typeof handler,broken},log:[]});
if(broken)throw broken.words;
input=settle(i);
let out,json;
try{out=handler(input,{moment:G.dayjs,dayjs:G.dayjs,Big:G.Big,env:{}});json=text(out)}catch(e){throw words(e)}
if(out instanceof Later)throw"handler is async, which a function node in the older form cannot be";
if(json===void 0)throw"handler returned nothing";
return'{"output":'+json+',"log":['+used()+"]}"}})})
