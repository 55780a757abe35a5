export default (Real,now)=>{
// Date in UTC whatever the host's zone is, with the batch's time as its clock.
const define=Object.defineProperty,construct=Reflect.construct,p=Real.prototype,utc=Real.UTC,native=Real.parse;
const own=(o,n,value)=>define(o,n,{value,writable:true,configurable:true});
const fields=["FullYear","Month","Date","Hours","Minutes","Seconds","Milliseconds"];
const local=fields.map(n=>p["get"+n]);
// A text without a zone is read in the host's zone by the engine: take its fields as UTC instead.
const parse=text=>{
const ms=native(text);
if(ms!==ms||/^\s*[+-]?\d{4,6}(-\d\d){0,2}\s*$|(Z|[+-]\d\d:?\d\d|GMT|UTC)\s*(\(.*\))?\s*$/i.test(text))return ms;
const at=new Real(ms),f=local.map(get=>get.call(at)),out=utc(...f);
return f[0]>=0&&f[0]<100?new Real(out).setUTCFullYear(f[0]):out};
const one=v=>{
if(v instanceof Real)return v.getTime();
if(v!==null&&typeof v==="object"){v=v[Symbol.toPrimitive]?v[Symbol.toPrimitive]("default"):typeof v.valueOf()!=="object"?v.valueOf():v.toString()}
return typeof v==="string"?parse(v):Number(v)};
const D=function Date(...x){
return new.target?construct(Real,[x.length===0?now():x.length===1?one(x[0]):utc(...x)],new.target):construct(Real,[now()],D).toString()};
D.prototype=p;
own(p,"constructor",D);own(D,"now",()=>now());own(D,"UTC",utc);own(D,"parse",text=>parse(String(text)));
for(const n of fields){own(p,"get"+n,p["getUTC"+n]);own(p,"set"+n,p["setUTC"+n])}
own(p,"getDay",p.getUTCDay);
own(p,"getTimezoneOffset",function(){return this.getTime()*0});
own(p,"getYear",function(){return this.getUTCFullYear()-1900});
const two=n=>String(n).padStart(2,"0");
const text=f=>function(){return isNaN(this.getTime())?"Invalid Date":f(this.toUTCString().split(/,? /),this)};
const day=(s,t)=>two(t.getUTCMonth()+1)+"/"+s[1]+"/"+s[3];
const clock=(s,t)=>two((t.getUTCHours()+11)%12+1)+s[4].slice(2)+(t.getUTCHours()<12?" AM":" PM");
const texts={String:s=>`${s[0]} ${s[2]} ${s[1]} ${s[3]} ${s[4]} GMT+0000`,DateString:s=>`${s[0]} ${s[2]} ${s[1]} ${s[3]}`,TimeString:s=>`${s[4]} GMT+0000`,
LocaleDateString:day,LocaleTimeString:clock,LocaleString:(s,t)=>day(s,t)+", "+clock(s,t)};
for(const n in texts)own(p,"to"+n,text(texts[n]));
return D}
